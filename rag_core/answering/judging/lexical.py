"""A judge that compares words. It finds what the passages do not mention, and seldom what they contradict."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Protocol

import numpy as np

from rag_core.answering.judging.evidence import Evidence, Premises, merge_evidence
from rag_core.answering.judging.languages import find_other_language
from rag_core.answering.judging.numbers import find_missing_plain_number
from rag_core.answering.judging.statements import Statement, find_statements
from rag_core.answering.judging.threads import map_in_thread
from rag_core.answering.judging.verdicts import Thresholds, claim_from_statement, verdict_from_claims
from rag_core.types import Answer, Grade, Passage, Verdict

if TYPE_CHECKING:
    from rag_core.models.encoders.bert import TokenVectors

METHOD = "lexical proxy"

MAX_CACHED_PASSAGES = 64
"""The number of passages whose token vectors are cached: judging sentence by sentence reads the same passages again."""


class TokenEncoder(Protocol):
    def token_vectors(self, texts: Sequence[str]) -> "list[TokenVectors]": ...


class TokenSimilarity:
    """The similarity of a claim's tokens to those of its passages, by an encoder that reads each in its sentence."""

    def __init__(self, encoder: TokenEncoder) -> None:
        self._encoder = encoder
        self._passage_rows = lru_cache(MAX_CACHED_PASSAGES)(lambda text: encoder.token_vectors([text])[0].rows)

    def cosines(self, claim: str, premises: Premises) -> list[float]:
        """The cosine of each content token of the claim with the nearest token of the passages."""
        (vectors,) = self._encoder.token_vectors([claim])
        content_rows = vectors.rows[premises.content_indices(claim, vectors.spans)]
        passage_rows = np.concatenate([self._passage_rows(text) for text in premises.texts])
        nearest: list[float] = (content_rows @ passage_rows.T).max(axis=1, initial=0.0).tolist()
        return nearest


class LexicalJudge:
    """A Judge that grades claims by their words, and their similarity in meaning if it has a `similarity`.

    Without one, paraphrases score lower. Whatever the score, a number that the passages do not contain makes a claim
    unsupported; it is partial at most if only one of the claim and the nearest sentence is negated, or if the passages
    contain a number or a name only among other words. A claim in another language than its passages is unchecked if it
    is not supported: its words cannot be compared with theirs.
    """

    def __init__(self, thresholds: Thresholds, similarity: TokenSimilarity | None) -> None:
        self._thresholds, self._similarity = thresholds, similarity

    async def judge(self, answer: Answer, passages: Sequence[Passage]) -> Verdict:
        """Judges each claim. The verdict's score is that of all checked claims read as one.

        The mean of their scores separates worse (AUROC .944 instead of .955, on BEGIN).
        """
        statements = find_statements(answer, passages)
        whole = " ".join(statement.text for statement in statements)
        evidences = await map_in_thread(partial(self._find_evidence, whole), statements)
        grades = [self._grade(evidence) for evidence in evidences]
        checked = [evidence for evidence, grade in zip(evidences, grades, strict=True) if grade != "unchecked"]
        claims = []
        for statement, evidence, grade in zip(statements, evidences, grades, strict=True):
            score = 0.0 if grade == "unchecked" else evidence.score
            reason = "" if grade == "supported" else evidence.reason
            claims.append(claim_from_statement(statement, grade, score, reason))
        verdict = verdict_from_claims(claims, METHOD)
        return replace(verdict, score=merge_evidence(checked).score) if checked else verdict

    def _find_evidence(self, answer: str, statement: Statement) -> Evidence:
        premises = Premises(statement.passages)
        cosines = self._similarity.cosines(statement.text, premises) if self._similarity and premises.texts else []
        evidence = premises.evidence(statement.text, cosines)
        if self._grade(evidence) == "supported":
            return evidence
        language = find_other_language(statement.text, answer, statement.passages)
        if not language:
            return evidence
        missing_number = find_missing_plain_number(statement.text, premises.texts)
        return replace(evidence, other_language=language, missing_number=missing_number)

    def _grade(self, evidence: Evidence) -> Grade:
        grade = self._thresholds.grade(evidence.score)
        if evidence.missing_number:
            return "unsupported"
        if evidence.other_language:
            return "unchecked"
        if evidence.negation_differs or evidence.moved_number or evidence.moved_name:
            return "partial" if grade == "supported" else grade
        return grade
