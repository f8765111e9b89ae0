"""Letters of languages, and how likely a text in a language contains a character.

Likelihoods are natural logarithms. They are rough on purpose: a wrong encoding gives letters that a language does not
have at all, symbols inside words, or words in two scripts.
"""

import re
from collections import Counter
from collections.abc import Mapping
from functools import cache

LATIN = {
    **{"ca": "óàíèéçòúüï·", "cs": "íáěéřčžýšůúťďňó", "da": "øåæéöü", "de": "üäößé", "en": "éïèç", "es": "óíáéñúü"},
    **{"et": "äõüöšž", "fi": "äöåšž", "fr": "éèàêçôùîâûœëïüÿæ", "hr": "čšžćđ", "hu": "áéöőóüíúű", "id": "é"},
    **{"is": "íáðöúóéæþý", "it": "èàòùìéî", "lt": "ėšžųįčūąę", "lv": "āīēšūņļčžģķōŗ", "nl": "ëéïèüöóêà"},
    **{"no": "øåæéöòô", "pl": "łóąężśćńź", "pt": "ãçáéíóêõàúâôü", "ro": "ăîşţâșț", "sk": "áíéčýžúšľťôňďäóĺŕ"},
    **{"sl": "čšžćđ", "sr": "čšžćđ", "sv": "äöåéüà", "tr": "ıişğüöçâîû"},
    "vi": "àáđôảạươếộấạốờệậóâứựầòúăểồớợìídịọễủụéèêẽẹẻừữửổỗỏõãẫẩắằặẵẳĩỉùũýỳỷỹỵ\u0303\u0300\u0301\u0309\u0323",
}
"""The letters outside ASCII of languages in the Latin script, the most common ones first."""

OTHER_SCRIPTS = {
    "ru": "оеаинтсрвлкмдпуяыьгзбчйхжшюцщэфъё",
    "uk": "оаинвіетрслкдмупязьбгчйхцжїщюєшфґ",
    "bg": "аоиентрвсклдпмзуябгчщцжюхйъшфь",
    "sr-cyrl": "аоиенртсукдвмјлпзгбшчцњћжљхфђџ",
    "el": "αοιετσνηυρπκμλςάίόγέδωθήχύφβώξζψϊϋΐΰ",
    "he": "יוהלארתבשמנדםקעפחצגטכןזסךףץ",
    "ar": "ايلمنوترهبعدفسكقجحشصةأطخضزىذءثغإئؤظآًٌٍَُِّْـ،؛؟",
    "fa": "اینردهمتوسشکبلگزپخفقعجحآصطچضغثظئذژءيك،؛؟",
    "th": "านรกอเ่งมย้ลวดทสตะัปบิคหีชไพ์ขุจใ็ูผธภแโืำึศซณถฟญฐฉษฮฆฝฏฎฑฒฬๆฯ",
}
"""The letters of languages in other scripts, the most common ones first."""

_WESTERN = frozenset("éèàáíóúñçüöäåøæßêëîïôûâãõìòùðþýœ")
_PUNCTUATION = frozenset("\u00a0«»“”„‘’‚‹›–—…°§·•№€£©®¡¿ºª´×±µ²³¼½\u200e\u200f\u00ad")
_INSIDE_WORDS = frozenset("’·\u00ad´ºª‘\u200c\u200d")
_CJK_PUNCTUATION = frozenset("、。，・「」『』（）：；！？〜ー《》“”…　—‘’・·")
_HANZI = frozenset(
    "的一是不了在有人我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年过发后作里用道行所然家种"
    "事成方多经么去法学如都同现当没动面起看定天分还进好小部其些主样理心本前开但因只从想实日军者意无力它与长把机十民第公此"
    "這個們來為國說時會對過發後裡種經麼學現當沒動還進樣開從實軍無與長機體點問題電東車書語請檔"
)
_KANJI = frozenset(
    "日一人年大十二本中長出三時行見月後前生五間上東四今金九入学高円子外八六下来気小七山話女北午百書先名川千水半男西電校語土木聞食車何南万毎白天母火右読友左休父雨文字用使作定場合方法示指名前数値部分動実表"
)
_SYLLABLES = frozenset(
    "이다는을의에가고하한지로를사은어시기인자도해서나그리있아대정수일과부라전니제보여상주장만으면게든"
)
_SCRIPTS = (
    *((0x00AA, 0x024F, "latin"), (0x0300, 0x036F, ""), (0x0370, 0x03FF, "greek"), (0x0400, 0x052F, "cyrillic")),
    *((0x0590, 0x05FF, "hebrew"), (0x0600, 0x06FF, "arabic"), (0x0E00, 0x0E7F, "thai"), (0x1E00, 0x1EFF, "latin")),
)
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_COMMON, _STEP = -2.2, -0.14
"""The likelihood of the most common letter, and what each next one is less likely."""

_ASCII, _CONTROL, _SYMBOL, _FOREIGN, _FOREIGN_WESTERN, _MARK = -2.7, -14.0, -11.0, -11.0, -8.0, -5.0
_MIXED_WORD, _SYMBOL_IN_WORD, _CAPITAL, _NEXT_CAPITAL, _CAPITAL_IN_WORD = -8.0, -4.0, -1.0, -0.3, -6.0
_LONE_LETTER, _LETTER_BESIDE_DIGIT = -3.0, -4.0
_MOSTLY_ASCII = -6.0
"""What a few letters of another script in ASCII text make less likely."""


def likelihood_by_language(text: str, priors: Mapping[str, float]) -> float:
    """The logarithm of the text's likelihood in its likeliest language.

    `priors` are logarithms for languages in the Latin script. A language without one gets the lowest.
    """
    counts = Counter(_NOT_ASCII.findall(text))
    ascii_characters = len(text) - counts.total()
    controls = sum(text.count(control) for control in "\0\x01\x02\x03\x04\x05\x06\x07\x0e\x0f\x10\x7f")
    shared = ascii_characters * _ASCII + controls * _CONTROL + _context_likelihood(text)
    lowered: Counter[str] = Counter()
    for char, count in counts.items():
        lowered[_lower(char)] += count
    other_scripts = _MOSTLY_ASCII if sum(map(str.isalpha, text)) > 4 * counts.total() else 0.0
    lowest = min(priors.values(), default=0.0)
    languages = (
        *((priors.get(language, lowest), _likelihoods(language)) for language in LATIN),
        *((other_scripts, _likelihoods(language)) for language in OTHER_SCRIPTS),
    )
    alphabetic = max(
        prior + sum(count * letters.get(char, _other(char)) for char, count in lowered.items())
        for prior, letters in languages
    )
    if any(_is_east_asian(char) for char in counts):
        east_asian = max(
            sum(count * _east_asian_likelihood(language, char) for char, count in counts.items())
            for language in ("zh", "ja", "ko")
        )
        return shared + max(alphabetic, other_scripts + east_asian)
    return shared + alphabetic


@cache
def _likelihoods(language: str) -> dict[str, float]:
    letters = LATIN.get(language) or OTHER_SCRIPTS[language]
    ranked = {letter: _COMMON + _STEP * rank for rank, letter in enumerate(dict.fromkeys(letters))}
    if language in LATIN:
        return {**dict.fromkeys(_WESTERN, _FOREIGN_WESTERN), **ranked}
    return ranked


def _lower(char: str) -> str:
    lower = char.lower()
    return lower if len(lower) == 1 else "i" if char == "İ" else char


@cache
def _other(char: str) -> float:
    """The likelihood of a character that is not a letter of the language."""
    if char in _PUNCTUATION:
        return _MARK
    if char == "\ufffd" or "\x80" <= char < "\xa0" or "\ue000" <= char <= "\uf8ff":
        return _CONTROL
    return _FOREIGN if char.isalpha() else _SYMBOL


def _context_likelihood(text: str) -> float:
    """The likelihood of capitals, symbols and changes of script by their neighbours."""
    total = 0.0
    for match in _NOT_ASCII.finditer(text):
        char, start = match[0], match.start()
        if char >= "\u2e80":
            continue
        before, after = text[start - 1 : start], text[start + 1 : start + 2]
        if char.isalpha():
            script = _script(char)
            total += _MIXED_WORD * (before.isalpha() and _script(before) != script)
            total += _MIXED_WORD * (after.isascii() and after.isalpha() and script != "latin")
            total += _LONE_LETTER * (script == "latin" and not before.isalpha() and (not after.isalpha()))
            total += _LETTER_BESIDE_DIGIT * (before.isdigit() or after.isdigit())
            if char.isupper():
                total += _CAPITAL_IN_WORD if before.islower() else _NEXT_CAPITAL if before.isupper() else _CAPITAL
            elif after.isupper() and (before.isupper() or after.isascii()):
                total += _CAPITAL_IN_WORD
        elif before.isalpha() and after.isalpha() and char not in _INSIDE_WORDS and _script(char) != _script(before):
            total += _SYMBOL_IN_WORD
    return total


@cache
def _script(char: str) -> str:
    code = ord(char)
    if code < 0x80:
        return "latin"
    return next((name for first, last, name in _SCRIPTS if first <= code <= last), "")


def _is_east_asian(char: str) -> bool:
    return "\u3000" <= char <= "\ud7a3" or "\uf900" <= char <= "\ufaff" or "\uff00" <= char <= "\uffef"


@cache
def _east_asian_likelihood(language: str, char: str) -> float:
    if char in _CJK_PUNCTUATION:
        return -4.0
    if "\u3041" <= char <= "\u30fe":
        return -3.5 if language == "ja" else -13.0
    if "\uac00" <= char <= "\ud7a3":
        if language != "ko":
            return -15.0
        return -4.0 if char in _SYLLABLES else -6.5 if len(char.encode("euc_kr")) == 2 else -13.0
    if "\u4e00" <= char <= "\u9fff":
        if language == "ko":
            return -12.0
        if char in (_KANJI if language == "ja" else _HANZI):
            return -5.0
        return (-7.5 if _is_common_ideograph(char, language) else -13.0) - (language == "ja") * 0.5
    if "\uff01" <= char <= "\uff5e":
        return -7.0
    return -14.0 if char == "\ufffd" or "\ue000" <= char <= "\uf8ff" else -11.0


def _is_common_ideograph(char: str, language: str) -> bool:
    """True for the ideographs that the national standards list first, as those in daily use."""
    if language == "ja":
        return "\x88" <= char.encode("cp932", "replace")[:1].decode("latin-1") <= "\x97"
    simplified, traditional = char.encode("gb2312", "replace"), char.encode("big5", "replace")
    return b"\xb0" <= simplified[:1] <= b"\xd7" or b"\xa4" <= traditional[:1] <= b"\xc6"
