"""Texts in legacy encodings that are decoded correctly, by this package and by charset-normalizer alone.

    python -m benchmarks.encodings
    python -m benchmarks.encodings /usr/share/man --sentences 20 --pages 10

A folder has one folder for each language, named by its code, with texts or manual pages (`.gz` too) in UTF-8. Each text
is encoded without a declaration. It counts as `right` if decoding gives the same text, as `flagged` if it gives another
text with the flag `encoding-uncertain`, and as `wrong` if it gives another text without the flag. `doubted` counts the
right texts with the flag.
"""

import argparse
import gzip
import re
import time
import unicodedata
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from charset_normalizer import from_bytes

from rag_core.parsing.encoding import decode_text, record_doubtful_guesses

_WESTERN = ("cp1252", "iso8859_15")
_CENTRAL = ("cp1250", "iso8859_2")
_BALTIC = ("cp1257", "iso8859_13")
_CYRILLIC = ("cp1251", "iso8859_5")
_WIDE = ("utf_16_le", "utf_16_be", "utf_32_le", "utf_32_be")
ENCODINGS = {
    **dict.fromkeys(("ca", "da", "de", "es", "fi", "fr", "is", "it", "nb", "nl", "no", "pt", "sv"), _WESTERN),
    **dict.fromkeys(("cs", "hr", "hu", "pl", "ro", "sk", "sl"), _CENTRAL),
    **dict.fromkeys(("et", "lt", "lv"), _BALTIC),
    **{
        "bg": _CYRILLIC,
        "ru": (*_CYRILLIC, "koi8_r", "cp866"),
        "sr": _CYRILLIC,
        "uk": ("cp1251", "koi8_u", "iso8859_5"),
    },
    **{"ar": ("cp1256", "iso8859_6"), "el": ("cp1253", "iso8859_7"), "he": ("cp1255", "iso8859_8")},
    **{"ja": ("cp932", "euc_jp", "iso2022_jp"), "ko": ("euc_kr", "iso2022_kr"), "th": ("cp874",)},
    **{"tr": ("cp1254", "iso8859_9"), "vi": ("cp1258",), "zh": ("gb18030", "big5")},
}
"""The legacy encodings of each language."""

SENTENCES = {
    "da": "Mødet blev afholdt på rådhuset, hvor borgmesteren åbnede den nye udstilling om øernes historie.",
    "de": "Das Mädchen läuft über die Straße zum Bäcker, weil es schöne Brötchen für das Frühstück möchte.",
    "el": "Η συνεδρίαση θα γίνει αύριο το πρωί στο δημαρχείο και είναι ανοιχτή για όλους τους κατοίκους.",
    "es": "La reunión se celebró en el salón del año pasado, porque el niño también quería más información.",
    "fr": "La réunion a été reportée à l'après-midi, parce que le président n'était pas arrivé à l'heure prévue.",
    "it": "Però la città è più bella così, perché nessuno può più entrare con l'automobile nel centro.",
    "ja": "会議は明日の午前中に市役所で開かれます。参加を希望する方は、受付でお名前をお知らせください。",
    "ko": "회의는 내일 오전에 시청에서 열립니다. 참가를 원하시는 분은 접수처에 이름을 알려 주십시오.",
    "nl": "De financiële coördinatie tussen België en de geïnteresseerde landen is één van de beste ideeën.",
    "pl": "Zebranie odbędzie się jutro w urzędzie, gdzie każdy może zgłosić własną propozycję i zadać pytanie.",
    "pt": "A reunião não será realizada amanhã, porque a direção também está à espera de mais informações.",
    "ru": "Собрание состоится завтра утром в городской администрации, и каждый сможет задать свой вопрос.",
    "sv": "Mötet hölls på rådhuset, där borgmästaren öppnade den nya utställningen om öarnas historia.",
    "tr": "Toplantı yarın sabah belediye binasında yapılacak ve isteyen herkes başkana soru sorabilecek.",
    "uk": "Збори відбудуться завтра вранці в міській раді, і кожен зможе поставити своє запитання.",
    "zh": "会议将于明天上午在市政府举行，所有希望参加的人请在门口登记自己的姓名。",
}
_MACRO = re.compile(r"^[.'].*$|\\(?:f(?:\[\w*\]|\(..|.)|[&/,]|s[-+]?\d)", re.MULTILINE)
_MIN_SENTENCE, _MAX_SENTENCE, _PAGE = 12, 300, 2000
_WITH_CEDILLA = str.maketrans("șțȘȚ", "şţŞŢ")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, help="folders of texts; built-in sentences if none is given")
    parser.add_argument("--sentences", type=int, default=20, help="the sentences of each language")
    parser.add_argument("--pages", type=int, default=10, help="the pages of each language")
    parser.add_argument("--ours-only", action="store_true", help="leave charset-normalizer out")
    args = parser.parse_args()
    texts = read_texts(args.folders, args.sentences, args.pages) if args.folders else built_in_texts()
    totals = {(name, size): Counter[str]() for name in ("ours", "normalizer") for size in ("sentence", "page")}
    seconds = {"ours": 0.0, "normalizer": 0.0}
    print(f"{'':32}{'right':>8}{'flagged':>8}{'wrong':>8}{'doubted':>8}   charset-normalizer: right, wrong")
    for (language, size), group in texts.items():
        for encoding in (*ENCODINGS[language.partition("_")[0]], *_WIDE):
            ours, normalizer = Counter[str](), Counter[str]()
            for text in group:
                body = encode(text, encoding)
                if body:
                    started = time.perf_counter()
                    ours.update(decode_with_flag(body, text))
                    seconds["ours"] += time.perf_counter() - started
                    if not args.ours_only:
                        started = time.perf_counter()
                        best = from_bytes(body).best()
                        normalizer["right" if best and same_text(str(best), text) else "wrong"] += 1
                        seconds["normalizer"] += time.perf_counter() - started
            totals["ours", size] += ours
            totals["normalizer", size] += normalizer
            if ours:
                print(render_row(f"{language:6}{size:10}{encoding}", ours, normalizer))
    for size in ("sentence", "page"):
        print(render_row(f"total {size}", totals["ours", size], totals["normalizer", size]))
    print(f"seconds: ours {seconds['ours']:.1f}, charset-normalizer {seconds['normalizer']:.1f}")


def built_in_texts() -> dict[tuple[str, str], list[str]]:
    pages = {(language, "page"): ["\n".join([text] * 15)] for language, text in SENTENCES.items()}
    return {**{(language, "sentence"): [text] for language, text in SENTENCES.items()}, **pages}


def read_texts(folders: list[Path], sentences: int, pages: int) -> dict[tuple[str, str], list[str]]:
    """Sentences and pages by language. Only lines that are not ASCII are sentences."""
    texts: dict[tuple[str, str], list[str]] = {}
    for folder in folders:
        for language in sorted(path for path in folder.iterdir() if path.name.partition("_")[0] in ENCODINGS):
            files = [text for text in map(read_plain_text, sorted(language.rglob("*.*"))) if not text.isascii()]
            files = [text for text in files if len(text) >= _PAGE] or files
            lines = [line for text in files[:: max(len(files) // sentences, 1)] for line in find_sentences(text)[3:4]]
            texts[language.name, "sentence"] = lines[:sentences]
            texts[language.name, "page"] = [text[:_PAGE] for text in files[:: max(len(files) // pages, 1)]][:pages]
    return texts


def read_plain_text(file: Path) -> str:
    """The text of a file without the macros of a manual page; empty for a folder and for bytes that are not UTF-8."""
    if not file.is_file():
        return ""
    try:
        body = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        text = _MACRO.sub("", body.decode())
    except (UnicodeDecodeError, OSError):
        return ""
    text = text.replace("\\-", "-").replace("\\(aq", "'").replace("\\ ", " ")
    return unicodedata.normalize("NFC", re.sub(r"\n\s*\n+", "\n\n", text).replace("\r", "").strip())


def find_sentences(text: str) -> list[str]:
    lines = [line.strip() for line in text.split("\n")]
    return [line[:_MAX_SENTENCE] for line in lines if not line.isascii() and len(line.encode()) >= 3 * _MIN_SENTENCE]


def encode(text: str, encoding: str) -> bytes:
    """The encoded text; empty if the encoding lacks one of its characters."""
    if encoding in ("cp1250", "iso8859_2"):  # these have only the older form of two Romanian letters
        text = text.translate(_WITH_CEDILLA)
    if encoding == "cp1258":
        text = to_vietnamese_parts(text)
    try:
        return text.encode(encoding)
    except UnicodeEncodeError:
        return b""


def to_vietnamese_parts(text: str) -> str:
    """The text with tones as characters of their own where cp1258 lacks the whole letter."""
    return "".join(map(split_tone, text))


def split_tone(char: str) -> str:
    parts = unicodedata.normalize("NFD", char)
    if char.encode("cp1258", "ignore") or len(parts) == 1:
        return char
    tone = next((mark for mark in parts[1:] if mark in "\u0300\u0301\u0303\u0309\u0323"), "")
    return unicodedata.normalize("NFC", "".join(part for part in parts if part != tone)) + tone


def decode_with_flag(body: bytes, text: str) -> Iterator[str]:
    with record_doubtful_guesses() as guesses:
        decoded = decode_text(body)
    if same_text(decoded, text):
        yield "right"
        if guesses:
            yield "doubted"
    else:
        yield "flagged" if guesses else "wrong"


def same_text(decoded: str, text: str) -> bool:
    """True for the same text. Both forms of the Romanian letters with a comma or a cedilla count as the same."""
    return unicodedata.normalize("NFC", decoded).translate(_WITH_CEDILLA) == text.translate(_WITH_CEDILLA)


def render_row(name: str, ours: Counter[str], normalizer: Counter[str]) -> str:
    counts = "".join(f"{ours[outcome]:8}" for outcome in ("right", "flagged", "wrong", "doubted"))
    return f"{name:32}{counts}   {normalizer['right']:8}{normalizer['wrong']:8}"


if __name__ == "__main__":
    main()
