"""The kind of answer that a question asks for: a number, a time, a name, a reason, a yes or no, or a list.

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
_HAN_NUMBER = "[〇零一二三四五六七八九十百千万萬亿億两兩半]"


@dataclass(frozen=True, slots=True)
class QuestionType:
    """`question_pattern` finds the type's question words, and `answer_pattern` finds possible answers in a sentence."""

    name: str
    question_pattern: re.Pattern[str]
    answer_pattern: re.Pattern[str]


QUESTION_TYPES = (
    QuestionType(
        "number",
        re.compile(
            r"\bhow (?:many|much|long|often|old|far|tall|large|big|high)\b|\bwhat percentage\b"
            r"|\bwie(?: ?viele?| lange?| oft| alt| weit| hoch| groß| teuer)\b|\bcombien\b|\bcuánt[oa]s?\b"
            "|多少|几[个個名次人位]|[幾多][大长長高久远遠]",
            re.IGNORECASE,
        ),
        re.compile(rf"\d|\b(?:{_NUMBERS})s?\b|{_HAN_NUMBER}", re.IGNORECASE),
    ),
    QuestionType(
        "time",
        re.compile(
            r"\bwhen\b|\b(?:what|which) (?:year|date|day|month|century|decade)\b"
            r"|\bwann\b|\bin welche[mr] (?:Jahr|Monat|Woche)|\bquand\b|\bquel(?:le)? (?:année|date|jour|mois)\b"
            r"|\bcuándo\b|\ben qué (?:año|fecha|mes|día)\b|什么时候|什麼時候|何时|何時|哪一?[年天月]",
            re.IGNORECASE,
        ),
        re.compile(rf"\b\d{{4}}\b|\b\d{{1,2}}:\d\d\b|\b(?:{_MONTHS})\b|\b(?:{_PERIODS})\b|\d ?[年月日时時]"),
    ),
    QuestionType(
        "name",
        re.compile(
            r"\b(?:who|whom|whose|where)\b|\b(?:wer|wem|wen|wessen|wo|wohin|woher)\b|^\W*(?:qui|où|à qui|de qui)\b"
            r"|\b(?:quién(?:es)?|dónde)\b|谁|誰|哪里|哪裡|哪儿|在哪",
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
            r"|^\W*(?:ist|sind|war|waren|darf|dürfen|kann|können|muss|müssen|hat|haben|gibt)\b"
            r"|^\W*(?:est-ce|y a-t-il|peut-on|faut-il|doit-on)\b|^\W*(?:es|son|puede|pueden|hay|debe|deben)\b|[吗嗎]",
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
            r"^\W*(?:list|name (?:the|all|two|three))\b|^\W*(?:nenne?|zähle?)\b|^\W*énumér|^\W*enumer|哪些",
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
