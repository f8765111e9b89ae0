"""Measures of chunks by answer spans: which chunks are relevant, and how much of the answer they contain.

A chunk is relevant if it overlaps a span of the answer. Recall, precision and intersection over union of characters
follow Smith and Troynikov, Evaluating Chunking Strategies for Retrieval (Chroma, 2024), who count tokens. A character
of the answer counts once, and a retrieved character as often as chunks repeat it.

Chunkers with chunks of other sizes are compared by the recall within the same number of retrieved tokens.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from rag_core.evaluation.metrics import CUTOFFS, measures

TOKEN_BUDGETS = (256, 512, 1024, 2048)
CHARS_PER_TOKEN = 4
"""The characters that count as one token, whatever the model: a budget must be equal for all chunkers."""

_TOKEN = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A half-open range of code points of a document's text."""

    document: str
    start: int
    end: int

    @property
    def length(self) -> int:
        return self.end - self.start

    def overlaps(self, other: "Span") -> bool:
        return self.document == other.document and max(self.start, other.start) < min(self.end, other.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerCharacters:
    """The characters in the answer spans of one question, and which of them each relevant chunk contains.

    Each array has the shape (length,). `length` includes characters that no chunk contains. `offsets` are the places
    of the characters in their documents; those of characters that no stored text contains mean nothing.
    """

    length: int
    by_chunk: Mapping[UUID, NDArray[np.bool_]]
    offsets: NDArray[np.int64]


NO_SPANS = AnswerCharacters(length=0, by_chunk={}, offsets=np.zeros(0, dtype=np.int64))
"""The characters of a question without spans."""


def answer_characters(spans: Sequence[Span], chunks: Mapping[UUID, Span], lost: int = 0) -> AnswerCharacters:
    """The characters of the spans, each once even if spans overlap, and `lost` more that no stored text contains."""
    characters = sorted({(span.document, offset) for span in spans for offset in range(span.start, span.end)})
    absent = np.zeros(lost, dtype=np.bool_)
    by_chunk = {}
    for id, chunk in chunks.items():
        if any(map(chunk.overlaps, spans)):
            contained = [name == chunk.document and chunk.start <= offset < chunk.end for name, offset in characters]
            by_chunk[id] = np.append(contained, absent)
    offsets = np.array([*(offset for _, offset in characters), *[0] * lost], dtype=np.int64)
    return AnswerCharacters(length=len(offsets), by_chunk=by_chunk, offsets=offsets)


def span_measures(
    ranking: Sequence[UUID], answer: AnswerCharacters, chunks: Mapping[UUID, Span], cutoffs: Sequence[int] = CUTOFFS
) -> dict[str, float]:
    """The `measures` of a ranking of chunks, and `char_recall`, `char_precision` and `char_iou` of the first k.

    `char_recall@512t` is the recall within the first 512 tokens; the chunk that exceeds them is cut.
    """
    values = measures(list(map(str, ranking)), {str(id): 1 for id in answer.by_chunk}, cutoffs)
    absent = np.zeros(answer.length, dtype=np.bool_)
    contained = np.array([absent, *(answer.by_chunk.get(id, absent) for id in ranking)])
    covered_counts = np.logical_or.accumulate(contained).sum(axis=1)
    retrieved_counts = np.cumsum([0, *(chunks[id].length for id in ranking)])
    for k in cutoffs:
        covered, retrieved = covered_counts[: k + 1][-1], retrieved_counts[: k + 1][-1]
        values[f"char_recall@{k}"] = float(covered / answer.length)
        values[f"char_precision@{k}"] = float(covered / max(1, retrieved))
        values[f"char_iou@{k}"] = float(covered / (answer.length + retrieved - covered))
    for tokens in TOKEN_BUDGETS:
        covered = _count_covered(ranking, answer, chunks, tokens * CHARS_PER_TOKEN)
        values[f"char_recall@{tokens}t"] = covered / answer.length
    return values


def _count_covered(
    ranking: Sequence[UUID], answer: AnswerCharacters, chunks: Mapping[UUID, Span], characters: int
) -> int:
    """The characters of the answer in the first `characters` of the ranked chunks."""
    covered, remaining = np.zeros(answer.length, dtype=np.bool_), characters
    for id in ranking:
        if remaining <= 0:
            break
        if id in answer.by_chunk:
            covered |= answer.by_chunk[id] & (answer.offsets < chunks[id].start + remaining)
        remaining -= chunks[id].length
    return int(covered.sum())


def align_spans(spans: Sequence[Span], original: str, stored: str) -> list[Span]:
    """Moves spans of the original text to the same words of the stored text.

    Parsing can have removed tags and carriage returns. A span is empty if none of its words was stored.
    """
    if original == stored:
        return list(spans)
    words, stored_words = list(_TOKEN.finditer(original)), list(_TOKEN.finditer(stored))
    matcher = SequenceMatcher(None, [word[0] for word in words], [word[0] for word in stored_words])
    common = [
        (words[first + n].start(), stored_words[second + n].start(), len(words[first + n][0]))
        for first, second, size in matcher.get_matching_blocks()
        for n in range(size)
    ]
    aligned = []
    for span in spans:
        parts = [
            (max(span.start, before) - before + after, min(span.end, before + length) - before + after)
            for before, after, length in common
            if max(span.start, before) < min(span.end, before + length)
        ]
        start, end = (parts[0][0], parts[-1][1]) if parts else (0, 0)
        aligned.append(Span(document=span.document, start=start, end=end))
    return aligned
