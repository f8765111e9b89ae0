"""Grades from scores, and verdicts from claims."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rag_core.answering.judging.statements import Statement
from rag_core.types import Answer, Claim, Grade, Verdict

UNSUPPORTED_CONFIDENCE = 0.3
"""The highest confidence in an answer that the judge finds unsupported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """The lowest scores of a claim that is `supported` or `partial`."""

    supported: float
    partial: float

    def grade(self, score: float) -> Grade:
        if score >= self.supported:
            return "supported"
        return "partial" if score >= self.partial else "unsupported"


def claim_from_statement(statement: Statement, grade: Grade, score: float, reason: str = "") -> Claim:
    return Claim(start=statement.start, end=statement.end, grade=grade, score=score, reason=reason)


def verdict_from_claims(claims: Sequence[Claim], method: str) -> Verdict:
    """The verdict on an answer. Its score is the mean of the checked claims' scores, and 0 if there are none."""
    if not claims:
        return Verdict(method=method)
    scores = [claim.score for claim in claims if claim.grade != "unchecked"]
    score = sum(scores) / len(scores) if scores else 0.0
    return Verdict(grade=overall_grade(claims), score=score, claims=tuple(claims), method=method)


def overall_grade(claims: Sequence[Claim]) -> Grade:
    """The grade of all claims if they have the same, `unsupported` if more are that than supported, else `partial`."""
    grades = [claim.grade for claim in claims]
    if len({*grades}) == 1:
        return grades[0]
    return "unsupported" if grades.count("unsupported") > grades.count("supported") else "partial"


def weigh_verdict(answer: Answer, confident: float) -> Answer:
    """Limits the confidence by the verdict, and the grade by the confidence.

    An answer below `confident` is at most partially supported, even if all its words are the sources' words.
    """
    confidence, verdict = answer.confidence, answer.verdict
    if confidence is None:
        return answer
    if verdict.grade == "unsupported":
        confidence = min(confidence, UNSUPPORTED_CONFIDENCE)
    if verdict.grade == "supported" and confidence < confident:
        verdict = replace(verdict, grade="partial")
    return replace(answer, confidence=confidence, verdict=verdict)
