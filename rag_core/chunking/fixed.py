"""Chunks of a fixed size in tokens or characters. Words and table rows are not cut if they fit."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from typing import Literal
from uuid import UUID

from rag_core.chunking.cut_points import NEAR_CHARS_PER_TOKEN, find_cut, fitting_end, skip_space
from rag_core.chunking.positions import path_at, with_section
from rag_core.chunking.prefix import CACHED_PREFIXES, fit_prefix, omit_repeated
from rag_core.chunking.tables import Row, row_at, table_rows
from rag_core.cpu_limit import check_cpu
from rag_core.protocols import Tokenizer
from rag_core.text.titles import missing_name_words
from rag_core.types import Chunk, Document, chunk_id


class FixedChunker:
    """`unit` is the unit of `size` and `overlap`. No chunk has more than `room` tokens, even if characters count."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        unit: Literal["tokens", "chars"],
        size: int,
        overlap: int,
        prefix_tokens: int,
        room: int,
    ) -> None:
        self._tokenizer, self._overlap = tokenizer, overlap
        self._fit_prefix = lru_cache(CACHED_PREFIXES)(partial(fit_prefix, tokenizer, prefix_tokens))
        self._counts_tokens = unit == "tokens"
        self._tokens = min(size, room) if self._counts_tokens else room
        chars = tuple(chars_per_token * size for chars_per_token in NEAR_CHARS_PER_TOKEN)
        self._chars_to_tokenize = chars if self._counts_tokens else (size,)

    def split(self, document_id: UUID, document: Document) -> tuple[Chunk, ...]:
        occurrences: Counter[str] = Counter()
        chunks = []
        rows = table_rows(document.text)
        name_words = missing_name_words(document.uri, document.title)
        for ordinal, (start, end) in enumerate(self._chunk_spans(document.text, rows)):
            text = document.text[start:end]
            row = row_at(rows, start)
            title, path = omit_repeated(document.title, name_words, path_at(document, start), text)
            chunk = Chunk(
                id=chunk_id(document_id, text, occurrences[text]),
                document_id=document_id,
                ordinal=ordinal,
                text=text,
                start=start,
                end=end,
                prefix=self._fit_prefix(title, path, row.header if row else ""),
            )
            chunks.append(with_section(chunk, document))
            occurrences[text] += 1
        return tuple(chunks)

    def _chunk_spans(self, text: str, rows: Sequence[Row]) -> Iterator[tuple[int, int]]:
        last = len(text.rstrip())
        start, previous_end = skip_space(text, 0, last), 0
        while start < last:
            end, overlap_start = self._chunk_end(text, start, last, rows)
            if end <= previous_end:  # the overlap leaves no room for new text: this chunk repeats nothing
                start = skip_space(text, previous_end, last)
                end, overlap_start = self._chunk_end(text, start, last, rows)
            yield start, end
            if end == last:
                return
            next_start = overlap_start
            if not text[next_start - 1].isspace():  # within a word: after it; some languages have no white space
                next_start = next((i for i in range(next_start, end) if text[i].isspace()), next_start)
            row = row_at(rows, next_start)
            if row and row.start < next_start:
                next_start = row.end
            start, previous_end = skip_space(text, min(next_start, end), len(text)), end

    def _chunk_end(self, text: str, start: int, last: int, rows: Sequence[Row]) -> tuple[int, int]:
        """The end of a chunk that begins at `start`, and the offset from which the next chunk can repeat it."""
        check_cpu()
        for chars in self._chars_to_tokenize:  # as little text as is needed to find the end
            near = text[start : min(last, start + chars)]
            ends = self._tokenizer.ends(near)
            if len(ends) > self._tokens or start + len(near) == last:
                break
        if len(ends) <= self._tokens and start + len(near) == last:
            return last, last
        limit = fitting_end(near, ends, self._tokens)
        cut = start + find_cut(text[start : start + len(near) + 1], limit)
        row = row_at(rows, cut)
        end = start + len(text[start : row.start if row and row.start > start else cut].rstrip())
        if not self._counts_tokens:
            return end, max(start + 1, end - self._overlap)
        inside = [token_end for token_end in ends if token_end <= end - start]
        return end, start + inside[-self._overlap - 1] if self._overlap < len(inside) else end
