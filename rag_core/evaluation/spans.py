"""Chunks measured by answer spans: which are relevant, and how much of the answer they bring.

A chunk is relevant if it overlaps a span of the answer. Recall, precision and intersection over union of characters are
those of Smith and Troynikov, Evaluating Chunking Strategies for Retrieval (Chroma, 2024), there of tokens: a character
of the answer is found once, and a retrieved one counts as often as chunks repeat it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from rag_core.evaluation.metrics import CUTS, measures

_TOKEN = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Code points of a document's text, half open."""

    document: str
    start: int
    end: int

    @property
    def length(self) -> int:
        return self.end - self.start

    def overlaps(self, other: "Span") -> bool:
        return self.document == other.document and max(self.start, other.start) < min(self.end, other.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Of one question: how many characters its spans have together, and by relevant chunk which of them it holds.

    Shape of each: (length,). Characters that no chunk holds count as well.
    """

    length: int
    held: Mapping[UUID, NDArray[np.bool_]]


UNMARKED = Answer(length=0, held={})
"""Of a question without spans."""


def answer(spans: Sequence[Span], chunks: Mapping[UUID, Span], lost: int = 0) -> Answer:
    """Where spans overlap, a character counts once; `lost` ones are in no stored text."""
    characters = sorted({(span.document, place) for span in spans for place in range(span.start, span.end)})
    relevant = {id: chunk for id, chunk in chunks.items() if any(map(chunk.overlaps, spans))}
    absent = np.zeros(lost, dtype=np.bool_)
    held = {id: np.append(_held(chunk, characters), absent) for id, chunk in relevant.items()}
    return Answer(length=len(characters) + lost, held=held)


def span_measures(
    ranking: Sequence[UUID], answer: Answer, chunks: Mapping[UUID, Span], cuts: Sequence[int] = CUTS
) -> dict[str, float]:
    """Those of documents, here of chunks; `char_recall`, `char_precision` and `char_iou` of the first k."""
    relevance = measures(list(map(str, ranking)), {str(id): 1 for id in answer.held}, cuts)
    absent = np.zeros(answer.length, dtype=np.bool_)
    held = np.array([absent, *(answer.held.get(id, absent) for id in ranking)])
    found = np.logical_or.accumulate(held).sum(axis=1)
    retrieved = np.cumsum([0, *(chunks[id].length for id in ranking)])
    for k in cuts:
        both, read = found[: k + 1][-1], retrieved[: k + 1][-1]
        relevance[f"char_recall@{k}"] = float(both / answer.length)
        relevance[f"char_precision@{k}"] = float(both / max(1, read))
        relevance[f"char_iou@{k}"] = float(both / (answer.length + read - both))
    return relevance


def aligned(spans: Sequence[Span], original: str, stored: str) -> list[Span]:
    """The same words in the text that was stored, from which parsing may have taken tags and carriage returns.

    A span of which no word was stored is empty.
    """
    if original == stored:
        return list(spans)
    kept = _matches(original, stored)
    return [_moved(span, kept) for span in spans]


def _held(chunk: Span, characters: Sequence[tuple[str, int]]) -> list[bool]:
    return [document == chunk.document and chunk.start <= place < chunk.end for document, place in characters]


def _matches(original: str, stored: str) -> list[tuple[int, int, int]]:
    """Words that both texts have, in their order: where they begin in each, and their length."""
    words, others = list(_TOKEN.finditer(original)), list(_TOKEN.finditer(stored))
    matcher = SequenceMatcher(None, [word[0] for word in words], [other[0] for other in others])
    return [
        (words[first + n].start(), others[second + n].start(), len(words[first + n][0]))
        for first, second, size in matcher.get_matching_blocks()
        for n in range(size)
    ]


def _moved(span: Span, kept: Sequence[tuple[int, int, int]]) -> Span:
    parts = [
        (max(span.start, before) - before + after, min(span.end, before + length) - before + after)
        for before, after, length in kept
        if max(span.start, before) < min(span.end, before + length)
    ]
    start, end = (parts[0][0], parts[-1][1]) if parts else (0, 0)
    return Span(document=span.document, start=start, end=end)
