"""Chunks of a fixed size in tokens or characters, whatever they say. Words and table rows stay whole where they fit."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal
from uuid import UUID

from rag_core.chunking.cut_points import CHARACTERS_A_TOKEN, after_space, cut_at_space
from rag_core.chunking.positions import path_at, with_section
from rag_core.chunking.prefix import shortened, unsaid
from rag_core.chunking.tables import Row, row_at, table_rows
from rag_core.protocols import Tokenizer
from rag_core.types import Chunk, Document, chunk_id

_USUAL = 6
"""Characters a token: in most texts more than it has."""


class FixedChunker:
    """`size` and `overlap` count in `unit`; no chunk has more than `room` tokens, also where characters are counted."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        unit: Literal["tokens", "chars"],
        size: int,
        overlap: int,
        prefix_tokens: int,
        room: int,
    ) -> None:
        self._tokenizer, self._prefix_tokens, self._overlap = tokenizer, prefix_tokens, overlap
        self._counts_tokens = unit == "tokens"
        self._tokens = min(size, room) if self._counts_tokens else room
        self._looks = (_USUAL * size, CHARACTERS_A_TOKEN * size) if self._counts_tokens else (size,)

    def split(self, document_id: UUID, document: Document) -> tuple[Chunk, ...]:
        seen: Counter[str] = Counter()
        chunks = []
        rows = table_rows(document.text)
        for ordinal, (start, end) in enumerate(self._spans(document.text, rows)):
            text = document.text[start:end]
            chunk = Chunk(
                id=chunk_id(document_id, text, seen[text]),
                document_id=document_id,
                ordinal=ordinal,
                text=text,
                start=start,
                end=end,
                prefix=self._prefix(document, text, start, rows),
            )
            chunks.append(with_section(chunk, document))
            seen[text] += 1
        return tuple(chunks)

    def _spans(self, text: str, rows: Sequence[Row]) -> Iterator[tuple[int, int]]:
        last = len(text.rstrip())
        start, before = after_space(text, 0, last), 0
        while start < last:
            end, repeated = self._ends(text, start, last, rows)
            if end <= before:  # nothing but what the chunk before has already: this one repeats nothing
                start = after_space(text, before, last)
                end, repeated = self._ends(text, start, last, rows)
            yield start, end
            if end == last:
                return
            start, before = self._next(text, repeated, end, rows), end

    def _ends(self, text: str, start: int, last: int, rows: Sequence[Row]) -> tuple[int, int]:
        """Where a chunk from `start` on ends, and from where on the next one may repeat it."""
        near, ends = self._near(text, start, last)
        if len(ends) <= self._tokens and start + len(near) == last:
            return last, last
        cut = start + cut_at_space(text[start : start + len(near) + 1], self._limit(near, ends))
        row = row_at(rows, cut)
        end = start + len(text[start : row.start if row and row.start > start else cut].rstrip())
        return end, self._repeated(start, end, ends)

    def _near(self, text: str, start: int, last: int) -> tuple[str, Sequence[int]]:
        """What a chunk may hold, and the ends of its tokens: as little text as shows where it ends."""
        for characters in self._looks:
            near = text[start : min(last, start + characters)]
            ends = self._tokenizer.ends(near)
            if len(ends) > self._tokens or start + len(near) == last:
                break
        return near, ends

    def _limit(self, near: str, ends: Sequence[int]) -> int:
        return ends[self._tokens - 1] if len(ends) > self._tokens else len(near)

    def _repeated(self, start: int, end: int, ends: Sequence[int]) -> int:
        if not self._counts_tokens:
            return max(start + 1, end - self._overlap)
        inside = [token for token in ends if token <= end - start]
        return start + inside[-self._overlap - 1] if self._overlap < len(inside) else end

    def _next(self, text: str, repeated: int, end: int, rows: Sequence[Row]) -> int:
        """The first word, or table row, that begins at `repeated` or behind it."""
        start = _word_from(text, repeated, end)
        row = row_at(rows, start)
        if row and row.start < start:
            start = row.end
        return after_space(text, min(start, end), len(text))

    def _prefix(self, document: Document, text: str, start: int, rows: Sequence[Row]) -> str:
        row = row_at(rows, start)
        title, path = unsaid(document.title, path_at(document, start), text)
        return shortened(self._tokenizer, title, path, row.header if row else "", self._prefix_tokens)


def _word_from(text: str, start: int, end: int) -> int:
    """`start`, or behind the word that it stands in; languages without white space have no such words."""
    if text[start - 1].isspace() or text[start : start + 1].isspace():
        return start
    return next((at for at in range(start, end) if text[at].isspace()), start)
