"""Support by words: a proxy. It finds what the passages do not speak of, and seldom what they say otherwise."""

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

import numpy as np

from rag_core.answering.judging.evidence import Evidence, Source, together
from rag_core.answering.judging.statements import Statement, statements
from rag_core.answering.judging.threads import each
from rag_core.answering.judging.verdicts import Thresholds, claim, overall
from rag_core.types import Answer, Claim, Grade, Matrix, Passage, Verdict

if TYPE_CHECKING:
    from rag_core.models.encoders.bert import TokenVectors

METHOD = "lexical proxy"

ENCODED = 64
"""Passages whose token vectors are kept: an answer that is judged sentence by sentence asks for the same again."""


class TokenEncoder(Protocol):
    def token_vectors(self, texts: Sequence[str]) -> "list[TokenVectors]": ...


class Nearness:
    """How near a claim's tokens come to those of its passages, by an encoder that sees each in its sentence."""

    def __init__(self, encoder: TokenEncoder) -> None:
        self._encoder, self._rows = encoder, lru_cache(ENCODED)(self._encoded)

    def cosines(self, claim: str, source: Source) -> list[float]:
        """Of each content token of the claim with the nearest token of the passages."""
        (own,) = self._encoder.token_vectors([claim])
        asked = own.rows[source.content(claim, own.spans)]
        held = np.concatenate([self._rows(text) for text in source.texts])
        nearest: list[float] = (asked @ held.T).max(axis=1, initial=0.0).tolist()
        return nearest

    def _encoded(self, text: str) -> Matrix:
        return self._encoder.token_vectors([text])[0].rows


class LexicalJudge:
    """Without `nearness` words count as they are written, and a paraphrase for less.

    A number that the passages do not hold makes a claim unsupported, and a negation that only it or only the nearest
    sentence has, partial at the most: whatever the score.
    """

    def __init__(self, thresholds: Thresholds, nearness: Nearness | None) -> None:
        self._thresholds, self._nearness = thresholds, nearness

    async def judge(self, answer: Answer, passages: Sequence[Passage]) -> Verdict:
        """Its score is that of all claims read as one: the mean of their scores tells less (AUROC .944, not
        .955, on BEGIN)."""
        stated = statements(answer, passages)
        found = await each(self._evidence, stated)
        if not stated:
            return Verdict(method=METHOD)
        claims = tuple(self._claim(*judged) for judged in zip(stated, found, strict=True))
        return Verdict(grade=overall(claims), score=together(found).score, claims=claims, method=METHOD)

    def _claim(self, statement: Statement, evidence: Evidence) -> Claim:
        grade = _vetoed(self._thresholds.grade(evidence.score), evidence)
        return claim(statement, grade, evidence.score, "" if grade == "supported" else evidence.reason)

    def _evidence(self, statement: Statement) -> Evidence:
        source = Source(statement.passages)
        near = self._nearness.cosines(statement.text, source) if self._nearness and source.texts else []
        return source.evidence(statement.text, near)


def _vetoed(grade: Grade, evidence: Evidence) -> Grade:
    if evidence.number:
        return "unsupported"
    return "partial" if evidence.negation and grade == "supported" else grade
