"""Detection of a question that changes the subject of its conversation, and its understanding."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import fsum
from typing import Protocol

import numpy as np

from rag_core.errors import ModelError, translate_foreign_errors
from rag_core.protocols import QueryEmbedder, Rarities, Understander
from rag_core.retrieval.query.adaptive import leave_subject
from rag_core.retrieval.query.continuation import answers_clarification
from rag_core.retrieval.query.follow_up import recognize_follow_up
from rag_core.retrieval.query.rules import MAX_READ_CHARS
from rag_core.stage import attempt, record_figures
from rag_core.text.analysis import STEMMERS, terms
from rag_core.types import Matrix, Message, Query, Understanding

SHIFT_STAGE = "topic_shift"
WINDOW = 3
"""The earlier questions, with their answers, that a question is compared with."""
MAX_ANSWER_CHARS = 100
"""The beginning of an answer that is encoded. Twice as much takes longer and adds at most .003 to the AUROC."""

_OVERLAP_WEIGHT, _REFERENCE_WEIGHT = 0.3, 0.3
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """The distance of a question from the subject so far, from 0 to 1, and whether it counts as another subject.

    The distance is None if there was nothing to compare with.
    """

    distance: float | None = None
    is_shift: bool = False


class ShiftDetector(Protocol):
    async def measure(self, query: Query, history: Sequence[Message]) -> Drift:
        """Compares the question with the end of the history. Raises RagError if it cannot."""
        ...


@dataclass(frozen=True, slots=True)
class Exchange:
    """A question and its answer, which is empty if there was none."""

    question: str
    answer: str = ""

    @property
    def texts(self) -> list[str]:
        """The question and the part of the answer that is encoded."""
        return [text for text in (self.question, self.answer[:MAX_ANSWER_CHARS]) if text.strip()]


@dataclass(frozen=True, slots=True)
class ShiftSignals:
    """What ties a question to the messages before it; the weights were measured, see `benchmarks.topic_shift`."""

    similarity: float
    overlap: float
    refers_back: bool

    @property
    def score(self) -> float:
        return self.similarity + _OVERLAP_WEIGHT * self.overlap + _REFERENCE_WEIGHT * self.refers_back


@dataclass(frozen=True, slots=True)
class TopicShiftDetector:
    """Calls a question a shift if its score is below the threshold.

    The score is the highest cosine with the last `window` questions and answers, plus 0.3 times the share of its idf
    that their words contain, plus 0.3 if it refers back.
    """

    embedder: QueryEmbedder
    rarities: Rarities
    threshold: float = 0.25
    window: int = WINDOW

    async def measure(self, query: Query, history: Sequence[Message]) -> Drift:
        exchanges = list_exchanges(history)[-self.window :]
        if not exchanges:
            return Drift()
        score = (await self.compare(query, exchanges)).score
        return Drift(distance=min(1.0, max(0.0, 1.0 - score)), is_shift=score < self.threshold)

    async def compare(self, query: Query, exchanges: Sequence[Exchange]) -> ShiftSignals:
        """The signals of a question after these exchanges, of which there is at least one."""
        return ShiftSignals(
            similarity=await self._similarity(query.text, exchanges),
            overlap=await self._overlap(query, exchanges),
            refers_back=refers_back(query.text, exchanges),
        )

    async def _similarity(self, question: str, exchanges: Sequence[Exchange]) -> float:
        """The highest cosine of the question with an earlier question, or with the beginning of an answer."""
        texts = [text for exchange in exchanges for text in exchange.texts]
        with translate_foreign_errors(ModelError):
            vectors = await self.embedder.embed([question, *texts])
        return float((vectors[1:] @ vectors[0]).max())

    async def _overlap(self, query: Query, exchanges: Sequence[Exchange]) -> float:
        """The share of the question's idf that the words of the exchanges contain; 0 if it has none."""
        idf = await self.rarities.idf(query)
        total = fsum(idf.values())
        window = " ".join(f"{exchange.question} {exchange.answer}" for exchange in exchanges)
        # The idf has the stems of all languages of the collection, which are not known here.
        known = idf.keys() & {term for language in ("", *STEMMERS) for term in terms(window, language)}
        return fsum(idf[term] for term in known) / total if total else 0.0


@dataclass(frozen=True, slots=True)
class WindowDriftDetector:
    """Calls a question a shift if its cosine with the mean of the last `window` questions is below the threshold."""

    embedder: QueryEmbedder
    threshold: float = 0.4
    window: int = WINDOW

    async def measure(self, query: Query, history: Sequence[Message]) -> Drift:
        exchanges = list_exchanges(history)[-self.window :]
        if not exchanges:
            return Drift()
        similarity = await self.compare(query, exchanges)
        return Drift(distance=min(1.0, max(0.0, 1.0 - similarity)), is_shift=similarity < self.threshold)

    async def compare(self, query: Query, exchanges: Sequence[Exchange]) -> float:
        """The cosine of the question with the mean of the questions, of which there is at least one."""
        with translate_foreign_errors(ModelError):
            vectors = await self.embedder.embed([query.text, *(exchange.question for exchange in exchanges)])
        return cosine_with_mean(vectors[0], vectors[1:])


@dataclass(frozen=True, slots=True)
class ShiftAwareUnderstander:
    """Lowers the weights of the history for a question that changes the subject, by the factor `history_weight`.

    Only a search has a subject: another intent, such as a request to sum up, keeps its history. So does a question
    whose drift cannot be measured, and the answer to a clarification.
    """

    understander: Understander
    detector: ShiftDetector
    history_weight: float = 0.5

    async def understand(self, query: Query, history: Sequence[Message]) -> Understanding:
        if not history or answers_clarification(history):
            return await self.understander.understand(query, history)
        drift = await attempt(SHIFT_STAGE, self._measure(query, history), otherwise=Drift())
        understanding = await self.understander.understand(query, history)
        understanding = replace(understanding, drift=drift.distance)
        if drift.is_shift and understanding.intent == "search":
            return leave_subject(query.text, understanding, self.history_weight)
        return understanding

    async def _measure(self, query: Query, history: Sequence[Message]) -> Drift:
        drift = await self.detector.measure(query, history)
        if drift.distance is not None:
            record_figures(drift=drift.distance, is_shift=drift.is_shift)
        return drift


def cosine_with_mean(vector: Matrix, others: Matrix) -> float:
    """The cosine of a vector, shape (dimension,), with the mean of the rows; 0 if one of them has length 0."""
    mean = others.mean(axis=0)
    length = float(np.linalg.norm(vector) * np.linalg.norm(mean))
    return float(vector @ mean) / length if length else 0.0


def list_exchanges(history: Sequence[Message]) -> list[Exchange]:
    """The questions of a history with their answers, oldest first; messages that have no subject are left out.

    So are messages without text, which only clients send, and what is longer than MAX_READ_CHARS.
    """
    exchanges: list[Exchange] = []
    for message in history:
        text = message.text[:MAX_READ_CHARS]
        if message.intent in ("conversational", "finalization") or not text.strip():
            continue
        if message.role == "user":
            exchanges.append(Exchange(text))
        elif exchanges:
            exchanges[-1] = replace(exchanges[-1], answer=text)
    return exchanges


def refers_back(question: str, exchanges: Sequence[Exchange]) -> bool:
    """True if the question has a word that continues a conversation, such as "it", or hardly any word of its own."""
    messages = [Message(role="user", text=exchange.question) for exchange in exchanges]
    follow_up = recognize_follow_up(question, messages)
    return bool(follow_up.references) or follow_up.is_indicated or follow_up.is_bare
