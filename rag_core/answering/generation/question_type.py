"""The kind of answer that a question asks for: a price, a number, a time, a name, a reason, a yes or no, or a list.

The question words are English, German, French, Spanish and Chinese; questions in other languages have no type. Some
words are question words in one language only where they begin the question.
"""

import re
from dataclasses import dataclass

_MONTHS = (
    "January|February|March|April|May|June|July|August|September|October|November|December"
    "|Januar|Februar|März|Mai|Juni|Juli|Oktober|Dezember"
    "|janvier|février|mars|avril|juin|juillet|août|septembre|octobre|novembre|décembre"
    "|enero|febrero|marzo|abril|mayo|junio|julio|agosto|septiembre|octubre|noviembre|diciembre"
)
_NUMBERS = (
    "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dozen|hundred|thousand|million|billion"
    "|zwei|drei|vier|fünf|sechs|sieben|acht|neun|zehn|elf|zwölf|hundert|tausend|Millionen|Milliarden"
    "|deux|trois|quatre|cinq|sept|huit|neuf|dix|onze|douze|cent|mille"
    "|dos|tres|cuatro|cinco|seis|siete|ocho|nueve|diez|once|doce|cien|mil|millones"
)
_PERIODS = (
    "century|centuries|decade|years?|days?|weeks?|months?"
    "|Jahrhunderts?|Jahrzehnts?|Jahre?n?|Tage?n?|Wochen?|Monate?n?|Uhr"
    "|siècles?|ans|années?|jours?|semaines?|mois|heures"
    "|siglos?|años?|días?|semanas?|mes|meses|horas"
)
_WEEKDAYS = (
    "(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)days?"
    "|(?:Mon|Diens|Donners|Frei|Sams|Sonn)tags?|Mittwochs?|montags|dienstags|mittwochs|donnerstags|freitags|samstags"
    "|lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche|lunes|martes|miércoles|jueves|viernes|sábados?|domingos?"
)
_HAN_NUMBER = "[〇零一二三四五六七八九十百千万萬亿億两兩半]"


@dataclass(frozen=True, slots=True)
class QuestionType:
    """`question_pattern` finds the type's question words, and `answer_pattern` finds possible answers in a sentence.

    `is_certain`: a sentence without a match does not answer such a question.
    """

    name: str
    question_pattern: re.Pattern[str]
    answer_pattern: re.Pattern[str]
    is_certain: bool = False


QUESTION_TYPES = (
    QuestionType(
        "price",
        re.compile(
            r"\b(?:how much|what) (?:does|do|did|will|would)\b(?=.*\bcosts?\b)"
            r"|\b(?:what|which) price\b|\bwhat (?:is|are|was) the\b(?=(?: \w+)? (?:price|cost|fee|fine|charge)s?\b)"
            r"|\b(?:was|wie ?viel) koste(?:t|n)\b|\bwie teuer\b"
            r"|\bwie hoch (?:ist|sind) d(?:er|ie) (?:preis|kosten|gebühr)\b"
            r"|\bcombien coûte(?:nt)?\b|\bquel est le (?:prix|tarif|coût)\b"
            r"|\bcuánto (?:cuesta|vale)n?\b|\b(?:cuál|qué) (?:es el )?(?:precio|coste)\b"
            "|多少[钱錢元块塊]|[价價]格是",
            re.IGNORECASE,
        ),
        re.compile(
            r"[€$£¥]|\b(?:EUR|USD|GBP|CHF|JPY|CNY)\b|[\d(\uff08] ?(?:元|块|塊|欧元|歐元|美元)"
            r"|\b(?:euros?|dollars?|pounds?|pence|cents?|yuan|yen|francs?|Franken|dólares)\b"
            r"|\b(?:free|kostenlos|gratuite?s?|gratis)\b|免费|免費",
            re.IGNORECASE,
        ),
        is_certain=True,
    ),
    QuestionType(
        "number",
        re.compile(
            r"\bhow (?:many|much|long|often|old|far|tall|large|big|high|heavy|wide|deep|thick|fast|quickly)\b"
            r"|\bwhat (?:percentage|amount)\b"
            r"|\bwie(?: ?viele?| lange?| oft| alt| weit| hoch| groß| schwer| breit| tief| dick| schnell)\b"
            r"|\bwelche[nrs]? \w*(?:betrag|preis|nummer|anzahl|summe|menge)\b"
            r"|\bcombien\b|\bquel(?:le)? (?:prix|montant|nombre|numéro|âge)\b"
            r"|\bcuánt[oa]s?\b|\bqué (?:importe|número|edad)\b"
            "|多少|[几幾][个個名次人位天周週年台件种種条條元块塊岁歲]|[幾多][大长長高久远遠重快深宽寬]",
            re.IGNORECASE,
        ),
        re.compile(rf"\d|\b(?:{_NUMBERS})s?\b|{_HAN_NUMBER}", re.IGNORECASE),
    ),
    QuestionType(
        "time",
        re.compile(
            r"\bwhen\b|\b(?:what|which) (?:year|date|day|month|century|decade|time)\b"
            r"|\bwann\b|\bwelche[mnrs]? (?:Jahr|Monat|Woche|Tag|Datum)\b"
            r"|\bquand\b|\bquel(?:le)? (?:année|date|jour|mois|heure)\b|\bcuándo\b|\bqué (?:año|fecha|mes|día|hora)\b"
            "|什么时候|什麼時候|何时|何時|哪一?[年天月日]|[几幾][点點月日号號]",
            re.IGNORECASE,
        ),
        re.compile(
            rf"\b\d{{4}}\b|\b\d{{1,2}}:\d\d\b|\b\d{{1,2}} ?(?:h|am|pm|[ap]\.m\.)(?!\w)"
            rf"|\b(?:{_MONTHS})\b|\b(?:{_PERIODS})\b|\b(?:{_WEEKDAYS})\b"
            r"|\d ?[年月日时時点點号號]|(?:星期|礼拜|禮拜|[周週])[一二三四五六日天]"
        ),
    ),
    QuestionType(
        "name",
        re.compile(
            r"\b(?:who|whom|whose|where)\b|\b(?:wer|wem|wen|wessen|wo|wohin|woher)\b|^\W*(?:qui|où|à qui|de qui)\b"
            r"|\b(?:quién(?:es)?|dónde)\b|谁|誰|哪里|哪裡|哪儿|在哪|什么地方|什麼地方"
            r"|\bwie hei(?:ß|ss)(?:t|en)\b|\bcomment s['’]appelle|\bcómo se llaman?\b|叫什么|叫什麼"  # noqa: RUF001
            r"|\b(?:what|which) (?:city|town|country|place|room)\b|\bwelche[mrs]? (?:Stadt|Land|Ort|Raum|Halle)\b"
            r"|\bquel(?:le)? (?:ville|pays|lieu|endroit|salle)\b|\bqué (?:ciudad|país|lugar|sitio|sala)\b",
            re.IGNORECASE,
        ),
        re.compile(r"(?<!^)\b[A-ZÀ-ÖØ-Þ]\w+|[省市县縣国國州区區]"),
    ),
    QuestionType(
        "reason",
        re.compile(
            r"\bwhy\b|\b(?:warum|wieso|weshalb)\b|\bpourquoi\b|\bpor qué\b|为什么|為什麼|为何|為何", re.IGNORECASE
        ),
        re.compile(
            r"\b(?:because|due to|since|as a result|therefore|in order to|caused? by)\b"
            r"|\b(?:weil|wegen|aufgrund|deshalb|daher|um zu)\b|\b(?:parce qu|en raison d|à cause d|afin d)"
            r"|\b(?:porque|debido a|ya que|por eso)\b|因为|因為|由于|由於|所以",
            re.IGNORECASE,
        ),
    ),
    QuestionType(
        "yes or no",
        re.compile(
            r"^\W*(?:is|are|was|were|does|do|did|can|could|may|must|should|has|have|will|would)\b"
            r"|^\W*(?:ist|sind|war|waren|darf|dürfen|kann|können|muss|müssen|soll|sollen|hat|haben|wird|werden|gibt|gilt)\b"
            r"|^\W*(?:est-ce|y a-t-il|\w+-(?:t-)?(?:je|tu|il|elle|on|nous|vous|ils|elles))\b"
            r"|^\W*(?:es|son|puedo|puede|pueden|hay|debo|debe|deben)\b"
            r"|¿(?!.*\b(?:qu[eé]|qui[eé]n(?:es)?|cu[aá]l(?:es)?|c[oó]mo|d[oó]nde|cu[aá]ndo|cu[aá]nt[oa]s?)\b)"
            "|[吗嗎]|是否|能不能|可不可以|有没有|有沒有",
            re.IGNORECASE,
        ),
        re.compile(
            r"\b(?:yes|no|not|never|cannot|must|may|only|allowed|forbidden|required|prohibited)\b|n['’]t\b"  # noqa: RUF001
            r"|\b(?:ja|nein|nicht|keine?r?|nie|nur|darf|dürfen|muss|müssen|verboten|erlaubt)\b"
            r"|\b(?:oui|non|pas|jamais|interdite?s?|autorisée?s?|doit|doivent|peut|peuvent)\b"
            r"|\b(?:sí|nunca|prohibid[oa]s?|permitid[oa]s?|debe|deben|puede|pueden)\b|[不没沒禁须須]|可以|允许|允許",
            re.IGNORECASE,
        ),
    ),
    QuestionType(
        "list",
        re.compile(
            r"^\W*(?:list|name (?:the|all|two|three))\b|^\W*(?:nenne?|zähle?)\b"
            r"|^\W*énumér|^\W*quel(?:le)?s sont\b|^\W*enumer|^\W*cuáles son\b|哪些",
            re.IGNORECASE,
        ),
        re.compile(r"(?:,[^,]+){2}|、"),
    ),
)


def question_type(question: str) -> QuestionType | None:
    """The type whose question words occur first in the question; None if none do."""
    matches = [
        (match.start(), index)
        for index, candidate in enumerate(QUESTION_TYPES)
        if (match := candidate.question_pattern.search(question))
    ]
    return QUESTION_TYPES[min(matches)[1]] if matches else None
