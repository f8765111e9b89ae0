"""Which of the hits a generator reads, in what order, within how many tokens."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from typing import Literal, TypeAlias
from uuid import UUID

from rag_core.answering.generation.near_duplicates import distinct
from rag_core.answering.generation.notes import check_template, headings, recency_note, relevance_notes, template_note
from rag_core.text.sentences import sentence_spans
from rag_core.types import Chunk, Hit, Passage

Fits: TypeAlias = Callable[[Sequence[Passage]], bool]

_WORD = re.compile(r"\S+")
_UNDATED = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """At most so many `passages`, of so many `tokens` together.

    `strategy` says what is noted before each: nothing, its relevance (weighted), its age (recency, which also orders
    the newest first, whatever `order` says), or the template as far as its {text}. `order` "document" keeps those of
    one document together, in text order. From the share `near_duplicate` of equal word triples a hit is left out.
    ConfigError if the template cannot be filled.
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
    """Passages of the hits, which come best first. Chunks that overlap or touch are one passage.

    Every hit that still fits is taken, whole, in the order of relevance: behind one that is too long a shorter one may
    come, behind the last passage one that lengthens another. All that is `shown` counts, by `lengths`. If the best hit
    alone is too long, it is the only passage, cut behind its last sentence that fits; none if title and headings are.
    """
    candidates = distinct(hits, packing.near_duplicate)
    fits = _fits(packing, lengths)
    if candidates and not fits(best := _laid_out(candidates[:1], packing)):
        return _cut(best[0], fits)
    taken: list[Hit] = []
    for hit in candidates:
        if fits(_laid_out([*taken, hit], packing)):
            taken.append(hit)
    return _laid_out(taken, packing)


def shown(passage: Passage) -> str:
    """What of a passage counts as read."""
    return "\n".join(filter(None, (passage.hit.origin.title, passage.note, headings(passage), passage.text)))


def _fits(packing: Packing, lengths: Callable[[Sequence[str]], list[int]]) -> Fits:
    @cache
    def tokens(text: str) -> int:
        return lengths([text])[0]

    def fits(passages: Sequence[Passage]) -> bool:
        few = len(passages) <= packing.passages
        return few and sum(tokens(shown(passage)) for passage in passages) <= packing.tokens

    return fits


def _laid_out(hits: Sequence[Hit], packing: Packing) -> tuple[Passage, ...]:
    return _noted(_numbered(_ordered(_by_relevance(hits), packing)), packing)


def _by_relevance(hits: Sequence[Hit]) -> list[Passage]:
    ranks = {hit.chunk.id: rank for rank, hit in enumerate(hits)}
    passages = [_joined(run, ranks) for run in _runs(hits)]
    return sorted(passages, key=lambda passage: ranks[passage.hit.chunk.id])


def _runs(hits: Sequence[Hit]) -> Iterator[list[Hit]]:
    """Of one document each, in text order, without gaps: what lies between two chunks is not known here."""
    run: list[Hit] = []
    for hit in sorted(hits, key=lambda hit: (hit.chunk.document_id.int, hit.chunk.start, hit.chunk.end)):
        if run and not _touches(run, hit.chunk):
            yield run
            run = []
        run.append(hit)
    if run:
        yield run


def _touches(run: Sequence[Hit], chunk: Chunk) -> bool:
    end = max(hit.chunk.end for hit in run)
    return chunk.document_id == run[0].chunk.document_id and chunk.start <= end


def _joined(run: Sequence[Hit], ranks: Mapping[UUID, int]) -> Passage:
    chunks = tuple(hit.chunk for hit in run)
    best = min(run, key=lambda hit: ranks[hit.chunk.id])
    return Passage(n=0, hit=best, text=_text(chunks), start=chunks[0].start, chunks=chunks)


def _text(chunks: Sequence[Chunk]) -> str:
    start, text = chunks[0].start, ""
    for chunk in chunks:
        text += chunk.text[start + len(text) - chunk.start :]
    return text


def _ordered(passages: Sequence[Passage], packing: Packing) -> list[Passage]:
    """From best first. A sort keeps the order of what it finds equal."""
    ordered = _by_document(passages) if packing.order == "document" else list(passages)
    if packing.strategy == "recency":
        ordered.sort(key=lambda passage: passage.hit.origin.updated_at or _UNDATED, reverse=True)
    return ordered


def _by_document(passages: Sequence[Passage]) -> list[Passage]:
    documents = list(dict.fromkeys(passage.hit.chunk.document_id for passage in passages))
    return sorted(passages, key=lambda passage: (documents.index(passage.hit.chunk.document_id), passage.start))


def _numbered(passages: Sequence[Passage]) -> tuple[Passage, ...]:
    return tuple(replace(passage, n=n) for n, passage in enumerate(passages, 1))


def _noted(passages: tuple[Passage, ...], packing: Packing) -> tuple[Passage, ...]:
    notes = _notes(passages, packing) if passages else []
    return tuple(replace(passage, note=note) for passage, note in zip(passages, notes, strict=True))


def _notes(passages: Sequence[Passage], packing: Packing) -> list[str]:
    match packing.strategy:
        case "concatenate":
            return [""] * len(passages)
        case "weighted":
            return relevance_notes([passage.hit.score for passage in passages])
        case "recency":
            return [recency_note(passage, packing.now) for passage in passages]
        case "template":
            return [template_note(packing.template, passage, packing.now) for passage in passages]


def _cut(passage: Passage, fits: Fits) -> tuple[Passage, ...]:
    """Behind the last sentence that fits, else the last word, else the last letter."""

    def ending(end: int) -> Passage:
        return replace(passage, text=passage.text[:end])

    for ends in _ends(passage.text):
        if fitting := bisect_left(ends, True, key=lambda end: not fits([ending(end)])):
            return (ending(ends[fitting - 1]),)
    return ()


def _ends(text: str) -> Iterator[Sequence[int]]:
    yield [end for _, end in sentence_spans(text)]
    yield [word.end() for word in _WORD.finditer(text)]
    yield range(1, len(text))
