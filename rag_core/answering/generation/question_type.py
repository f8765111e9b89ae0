"""What kind of answer a question asks for, and whether a sentence has one: a number, a time, a name, a reason.

By the words of English; questions in other languages ask for nothing in particular.
"""

import re
from dataclasses import dataclass

_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
_NUMBERS = "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dozen|hundred|thousand|million|billion"


@dataclass(frozen=True, slots=True)
class QuestionType:
    """`asks` is found in a question of the type, and `answers` in what may answer it."""

    name: str
    asks: re.Pattern[str]
    answers: re.Pattern[str]


QUESTION_TYPES = (
    QuestionType(
        "number",
        re.compile(r"\bhow (?:many|much|long|often|old|far|tall|large|big|high)\b|\bwhat percentage\b", re.IGNORECASE),
        re.compile(rf"\d|\b(?:{_NUMBERS})s?\b", re.IGNORECASE),
    ),
    QuestionType(
        "time",
        re.compile(r"\bwhen\b|\b(?:what|which) (?:year|date|day|month|century|decade)\b", re.IGNORECASE),
        re.compile(rf"\b\d{{4}}\b|\b(?:{_MONTHS})\b|\b(?:century|centuries|decade|years?|days?|weeks?|months?)\b"),
    ),
    QuestionType(
        "name",
        re.compile(r"\b(?:who|whom|whose|where)\b", re.IGNORECASE),
        re.compile(r"(?<!^)\b[A-ZÀ-ÖØ-Þ]\w+"),
    ),
    QuestionType(
        "reason",
        re.compile(r"\bwhy\b", re.IGNORECASE),
        re.compile(r"\b(?:because|due to|since|as a result|therefore|in order to|caused? by)\b", re.IGNORECASE),
    ),
)


def question_type(question: str) -> QuestionType | None:
    """The one whose words stand first in the question; None if it is of no type."""
    found = [
        (match.start(), number) for number, each in enumerate(QUESTION_TYPES) if (match := each.asks.search(question))
    ]
    return QUESTION_TYPES[min(found)[1]] if found else None
