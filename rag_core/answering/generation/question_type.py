"""The kind of answer that a question asks for: a number, a time, a name or a reason.

The patterns are English; questions in other languages have no type.
"""

import re
from dataclasses import dataclass

_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
_NUMBERS = "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dozen|hundred|thousand|million|billion"


@dataclass(frozen=True, slots=True)
class QuestionType:
    """`question_pattern` finds the type's question words, and `answer_pattern` finds possible answers in a sentence."""

    name: str
    question_pattern: re.Pattern[str]
    answer_pattern: re.Pattern[str]


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
    """The type whose question words occur first in the question; None if none do."""
    matches = [
        (match.start(), index)
        for index, candidate in enumerate(QUESTION_TYPES)
        if (match := candidate.question_pattern.search(question))
    ]
    return QUESTION_TYPES[min(matches)[1]] if matches else None
