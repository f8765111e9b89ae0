"""Sentences of a document with their lengths, and chunks from runs of them.

All chunkers of whole sentences use this. Only a sentence that is too long for a chunk is cut: a cut sentence contains a
whole answer clearly less often.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
from uuid import UUID

from rag_core.chunking.cut_points import MAX_CHARS_PER_TOKEN, NEAR_CHARS_PER_TOKEN, find_cut, fitting_end, skip_space
from rag_core.chunking.packing import Sentence, common_path, total_tokens
from rag_core.chunking.prefix import (
    CACHED_PREFIXES,
    build_prefix,
    fit_prefix,
    is_heading,
    longest_prefix,
    omit_repeated,
)
from rag_core.chunking.tables import table_row
from rag_core.cpu_limit import check_cpu
from rag_core.protocols import Tokenizer
from rag_core.text.sentences import sentence_spans
from rag_core.text.titles import missing_name_words
from rag_core.types import MAX_HEADER_CHARS, Chunk, Document, Section, chunk_id

_MEASURED_TEXTS = 1_000
"""The texts that are measured between two checks of the CPU time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """`long_prefix_sections` holds the indexes of the sections whose title and path exceed the limit of a prefix."""

    sections: Sequence[Section]
    sentences: Sequence[Sentence]
    long_prefix_sections: frozenset[int]


class Outliner:
    """`tokens` is the limit of a chunk, `prefix_tokens` the limit of its prefix."""

    def __init__(self, tokenizer: Tokenizer, tokens: int, prefix_tokens: int) -> None:
        self._tokenizer, self._tokens, self._prefix_tokens = tokenizer, tokens, prefix_tokens
        self._chars = MAX_CHARS_PER_TOKEN * tokens
        self._fit_prefix = lru_cache(CACHED_PREFIXES)(partial(fit_prefix, tokenizer))

    def outline(self, document: Document) -> Outline:
        """The outline. The text before the first section becomes a section without a path."""
        text, sections = document.text, document.sections
        if not sections or sections[0].start != 0:
            sections = (Section(path=(), start=0), *sections)
        spans = _sentence_spans_with_sections(text, sections)
        # each sentence with the white space after it: in some vocabularies that is tokens, too
        ends = [*(start for start, _, _ in spans[1:]), *(end for _, end, _ in spans[-1:])]
        texts = [text[start:end] for (start, _, _), end in zip(spans, ends, strict=True)]
        name_words = missing_name_words(document.uri, document.title)
        prefixes = [longest_prefix(document.title, name_words, section.path) for section in sections]
        headers = list(_table_headers(text, spans))
        distinct = sorted(set(headers))
        all_lengths = self._measure_lengths([*texts, *prefixes, *(header[:MAX_HEADER_CHARS] for header in distinct)])
        lengths, prefix_lengths = all_lengths[: len(spans)], all_lengths[len(spans) : len(spans) + len(sections)]
        excess = {
            header: max(0, length - self._prefix_tokens)
            for header, length in zip(distinct, all_lengths[len(spans) + len(sections) :], strict=True)
        }
        sentences = [
            Sentence(
                start=first,
                end=last,
                tokens=tokens,
                section=section,
                header=header,
                header_tokens=excess[header] if tokens + excess[header] <= self._tokens else 0,
            )
            for (start, end, section), length, header in zip(spans, lengths, headers, strict=True)
            for first, last, tokens in self._split_sentence(text, start, end, length)
        ]
        long_prefixes = (i for i, length in enumerate(prefix_lengths) if length > self._prefix_tokens)
        return Outline(sections=sections, sentences=sentences, long_prefix_sections=frozenset(long_prefixes))

    def _measure_lengths(self, texts: Sequence[str]) -> list[int]:
        """The lengths in tokens. A text with too many characters for a chunk is not tokenized: each counts as one."""
        lengths: list[int] = []
        for first in range(0, len(texts), _MEASURED_TEXTS):
            check_cpu()
            batch = texts[first : first + _MEASURED_TEXTS]
            lengths += self._tokenizer.lengths([text if len(text) <= self._chars else "" for text in batch])
        return [len(text) if len(text) > self._chars else length for text, length in zip(texts, lengths, strict=True)]

    def _split_sentence(self, text: str, start: int, end: int, tokens: int) -> Iterator[tuple[int, int, int]]:
        """(start, end, tokens) of the sentence, or of its parts if it is too long for one chunk."""
        if tokens <= self._tokens and end - start <= self._chars:
            yield start, end, tokens
            return
        while start < end:
            check_cpu()
            for chars_per_token in NEAR_CHARS_PER_TOKEN:
                near = text[start : min(end, start + chars_per_token * self._tokens)]
                ends = self._tokenizer.ends(near)
                if len(ends) > self._tokens or start + len(near) == end:
                    break
            if len(ends) <= self._tokens and start + len(near) == end:
                yield start, end, len(ends)
                return
            cut = find_cut(near, fitting_end(near, ends, self._tokens))
            yield start, start + cut, self._tokens  # it fills its chunk, even if its characters were the limit
            start = skip_space(text, start + cut, end)

    def build_chunks(
        self, document_id: UUID, document: Document, outline: Outline, parts: Sequence[Sequence[Sentence]]
    ) -> Iterator[Chunk]:
        """Yields one chunk for each part, in their order."""
        occurrences: Counter[str] = Counter()
        name_words = missing_name_words(document.uri, document.title)
        for ordinal, part in enumerate(parts):
            first, start, end = part[0], part[0].start, part[-1].end
            text = document.text[start:end]
            path = common_path([outline.sections[i].path for i in {sentence.section for sentence in part}])
            title, headings = omit_repeated(document.title, name_words, path, text)
            if first.header or first.section in outline.long_prefix_sections:
                room = min(first.header_tokens, self._tokens - total_tokens(part))
                prefix = self._fit_prefix(self._prefix_tokens + max(room, 0), title, headings, first.header)
            else:
                prefix = build_prefix(title, headings)
            yield Chunk(
                id=chunk_id(document_id, text, occurrences[text]),
                document_id=document_id,
                ordinal=ordinal,
                text=text,
                start=start,
                end=end,
                prefix=prefix,
                metadata={"section": " > ".join(path)} if path else {},
            )
            occurrences[text] += 1


def _sentence_spans_with_sections(text: str, sections: Sequence[Section]) -> list[tuple[int, int, int]]:
    """(start, end, section) of every sentence. A section that is only a heading is added to the section after it."""
    spans: list[tuple[int, int, int]] = []
    headings: list[tuple[int, int]] = []
    for i, (start, end) in enumerate(pairwise([*(section.start for section in sections), len(text)])):
        sentences = [(start + first, start + last) for first, last in sentence_spans(text[start:end])]
        if len(sentences) == 1 and is_heading(text[slice(*sentences[0])], sections[i].path):
            headings += sentences
        elif sentences:
            spans += [(first, last, i) for first, last in headings + sentences]
            headings = []
    return spans + [(first, last, len(sections) - 1) for first, last in headings]


def _table_headers(text: str, spans: Sequence[tuple[int, int, int]]) -> Iterator[str]:
    """Yields for each sentence the first row of the table that it continues, else an empty text."""
    header, previous_end = "", 0
    for start, end, _ in spans:
        row = table_row(text[start:end])
        continues = row != "" and header != "" and text.count("\n", previous_end, start) == 1
        yield header if continues else ""
        if not continues:
            header = row
        previous_end = end
