"""The selection of passages for a generator: which hits it reads, in what order, within how many tokens."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from typing import Literal, TypeAlias
from uuid import UUID

from rag_core.answering.generation.near_duplicates import drop_near_duplicates
from rag_core.answering.generation.notes import check_template, headings, recency_note, relevance_notes, template_note
from rag_core.text.sentences import sentence_spans
from rag_core.types import Hit, Passage

Fits: TypeAlias = Callable[[Sequence[Passage]], bool]

_WORD = re.compile(r"\S+")
_UNDATED = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """The settings of `pack`: at most `passages` passages, with at most `tokens` tokens together.

    `strategy` selects the note before each passage: none (concatenate), its relevance (weighted), its age (recency), or
    `template` up to its {text}. Recency also sorts the passages by date, newest first, in either order. `order`
    "document" keeps the passages of a document together, in text order. A hit is left out if a better one contains the
    share `near_duplicate` of its word triples. Raises ConfigError if the template is not valid.
    """

    strategy: Literal["concatenate", "weighted", "recency", "template"]
    order: Literal["relevance", "document"]
    passages: int
    tokens: int
    near_duplicate: float
    template: str
    now: datetime

    def __post_init__(self) -> None:
        check_template(self.template)


def pack(hits: Sequence[Hit], packing: Packing, lengths: Callable[[Sequence[str]], list[int]]) -> tuple[Passage, ...]:
    """Makes passages of the hits, which must be best first. Chunks that overlap or touch become one passage.

    Every hit that fits is taken, uncut, in the order of relevance: a shorter hit can follow one that is too long, and a
    hit can still extend a passage when there are as many as allowed. `lengths` counts the tokens of each
    `counted_text`. If the best hit alone is too long, the only passage is the part of it that fits; none if its title
    and headings do not fit.
    """
    candidates = drop_near_duplicates(hits, packing.near_duplicate)

    @cache
    def count_tokens(text: str) -> int:
        return lengths([text])[0]

    def fits(passages: Sequence[Passage]) -> bool:
        if len(passages) > packing.passages:
            return False
        return sum(count_tokens(counted_text(passage)) for passage in passages) <= packing.tokens

    if candidates and not fits(best := _build_passages(candidates[:1], packing)):
        return _truncate(best[0], fits)
    selected: list[Hit] = []
    for hit in candidates:
        if fits(_build_passages([*selected, hit], packing)):
            selected.append(hit)
    return _build_passages(selected, packing)


def counted_text(passage: Passage) -> str:
    """The text of a passage that counts against the limit of tokens."""
    return "\n".join(filter(None, (passage.hit.origin.title, passage.note, headings(passage), passage.text)))


def _build_passages(hits: Sequence[Hit], packing: Packing) -> tuple[Passage, ...]:
    """Joins, orders, numbers and annotates the passages of the hits."""
    if not hits:
        return ()
    ranks = {hit.chunk.id: rank for rank, hit in enumerate(hits)}
    passages = [_join_run(run, ranks) for run in _split_runs(hits)]
    passages.sort(key=lambda passage: ranks[passage.hit.chunk.id])
    if packing.order == "document":
        documents = list(dict.fromkeys(passage.hit.chunk.document_id for passage in passages))
        passages.sort(key=lambda passage: (documents.index(passage.hit.chunk.document_id), passage.start))
    if packing.strategy == "recency":  # stable: passages of one date keep their order
        passages.sort(key=lambda passage: passage.hit.origin.updated_at or _UNDATED, reverse=True)
    passages = [replace(passage, n=n) for n, passage in enumerate(passages, 1)]
    match packing.strategy:
        case "concatenate":
            return tuple(passages)
        case "weighted":
            notes = relevance_notes([passage.hit.score for passage in passages])
        case "recency":
            notes = [recency_note(passage, packing.now) for passage in passages]
        case "template":
            notes = [template_note(packing.template, passage, packing.now) for passage in passages]
    return tuple(replace(passage, note=note) for passage, note in zip(passages, notes, strict=True))


def _split_runs(hits: Sequence[Hit]) -> Iterator[list[Hit]]:
    """Yields runs of hits in one document, in text order. A gap between chunks ends a run: its text is unknown here."""
    run: list[Hit] = []
    for hit in sorted(hits, key=lambda hit: (hit.chunk.document_id.int, hit.chunk.start, hit.chunk.end)):
        if run:
            end = max(previous.chunk.end for previous in run)
            if hit.chunk.document_id != run[0].chunk.document_id or hit.chunk.start > end:
                yield run
                run = []
        run.append(hit)
    if run:
        yield run


def _join_run(run: Sequence[Hit], ranks: Mapping[UUID, int]) -> Passage:
    chunks = tuple(hit.chunk for hit in run)
    start, text = chunks[0].start, ""
    for chunk in chunks:
        text += chunk.text[start + len(text) - chunk.start :]
    best = min(run, key=lambda hit: ranks[hit.chunk.id])
    return Passage(n=0, hit=best, text=text, start=start, chunks=chunks)


def _truncate(passage: Passage, fits: Fits) -> tuple[Passage, ...]:
    """Cuts a passage after the last sentence that fits, or else the last word, or else the last letter."""
    sentence_ends = [end for _, end in sentence_spans(passage.text)]
    word_ends = [word.end() for word in _WORD.finditer(passage.text)]
    endings: tuple[Sequence[int], ...] = (sentence_ends, word_ends, range(1, len(passage.text)))
    for ends in endings:
        if fitting := bisect_left(ends, True, key=lambda end: not fits([replace(passage, text=passage.text[:end])])):
            return (replace(passage, text=passage.text[: ends[fitting - 1]]),)
    return ()
