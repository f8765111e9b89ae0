"""What chunkers of whole sentences share: a document's sentences with their lengths, and runs of them as chunks.

Sentences are cut only where one alone is too long: cut ones hold clearly fewer whole answers.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from uuid import UUID

from rag_core.chunking.cut_points import CHARACTERS_A_TOKEN, after_space, cut_at_space
from rag_core.chunking.packing import Sentence, common_path
from rag_core.chunking.prefix import is_heading, longest_prefix, prefix, shortened, unsaid
from rag_core.chunking.tables import cells_of
from rag_core.protocols import Tokenizer
from rag_core.text.sentences import sentence_spans
from rag_core.types import Chunk, Document, Section, chunk_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """`crowded` are the sections whose title and path are longer than a prefix may be."""

    sections: Sequence[Section]
    sentences: Sequence[Sentence]
    crowded: frozenset[int]


class Outliner:
    """`tokens` is what a chunk may have at the most, and `prefix_tokens` its prefix."""

    def __init__(self, tokenizer: Tokenizer, tokens: int, prefix_tokens: int) -> None:
        self._tokenizer, self._tokens, self._prefix_tokens = tokenizer, tokens, prefix_tokens
        self._characters = CHARACTERS_A_TOKEN * tokens

    def outline(self, document: Document) -> Outline:
        sections = _sections(document)
        spans = _spans(document.text, sections)
        prefixes = [longest_prefix(document.title, section.path) for section in sections]
        lengths = self._tokenizer.lengths([*_with_gaps(document.text, spans), *prefixes])
        crowded = (i for i, length in enumerate(lengths[len(spans) :]) if length > self._prefix_tokens)
        sentences = self._sentences(document.text, spans, lengths[: len(spans)])
        return Outline(sections=sections, sentences=sentences, crowded=frozenset(crowded))

    def _sentences(
        self, text: str, spans: Sequence[tuple[int, int, int]], lengths: Sequence[int]
    ) -> Sequence[Sentence]:
        return [
            Sentence(start=first, end=last, tokens=tokens, section=section, header=header)
            for (start, end, section), length, header in zip(spans, lengths, _headers(text, spans), strict=True)
            for first, last, tokens in self._pieces(text, start, end, length)
        ]

    def _pieces(self, text: str, start: int, end: int, tokens: int) -> Iterator[tuple[int, int, int]]:
        """(start, end, tokens) of the span, or of its parts where it is too long for one chunk."""
        if tokens <= self._tokens and end - start <= self._characters:
            yield start, end, tokens
            return
        while start < end:
            near = text[start : min(end, start + self._characters)]
            ends = self._tokenizer.ends(near)
            if len(ends) <= self._tokens and start + len(near) == end:
                yield start, end, len(ends)
                return
            cut = cut_at_space(near, ends[self._tokens - 1] if len(ends) > self._tokens else len(near))
            yield start, start + cut, self._tokens  # it fills its chunk, also when its characters were the limit
            start = after_space(text, start + cut, end)

    def chunks(
        self, document_id: UUID, document: Document, outline: Outline, parts: Sequence[Sequence[Sentence]]
    ) -> Iterator[Chunk]:
        """One a part, in their order."""
        seen: Counter[str] = Counter()
        for ordinal, part in enumerate(parts):
            start, end = part[0].start, part[-1].end
            text = document.text[start:end]
            path = common_path([outline.sections[i].path for i in {sentence.section for sentence in part}])
            yield Chunk(
                id=chunk_id(document_id, text, seen[text]),
                document_id=document_id,
                ordinal=ordinal,
                text=text,
                start=start,
                end=end,
                prefix=self._prefix(document.title, path, text, part[0], outline.crowded),
                metadata={"section": " > ".join(path)} if path else {},
            )
            seen[text] += 1

    def _prefix(self, title: str, path: tuple[str, ...], text: str, first: Sentence, crowded: frozenset[int]) -> str:
        title, path = unsaid(title, path, text)
        if first.header or first.section in crowded:
            return shortened(self._tokenizer, title, path, first.header, self._prefix_tokens)
        return prefix(title, path)


def _sections(document: Document) -> Sequence[Section]:
    """The document's, and a nameless one for the text before the first."""
    if document.sections and document.sections[0].start == 0:
        return document.sections
    return (Section(path=(), start=0), *document.sections)


def _spans(text: str, sections: Sequence[Section]) -> list[tuple[int, int, int]]:
    """(start, end, section) of every sentence; a heading with no text of its own belongs to the section after it."""
    spans: list[tuple[int, int, int]] = []
    headings: list[tuple[int, int]] = []
    for i, (start, end) in enumerate(pairwise([*(section.start for section in sections), len(text)])):
        found = [(start + first, start + last) for first, last in sentence_spans(text[start:end])]
        if len(found) == 1 and is_heading(text[slice(*found[0])], sections[i].path):
            headings += found
        elif found:
            spans += [(first, last, i) for first, last in headings + found]
            headings = []
    return spans + [(first, last, len(sections) - 1) for first, last in headings]


def _with_gaps(text: str, spans: Sequence[tuple[int, int, int]]) -> list[str]:
    """Each sentence with the white space after it: in some vocabularies that is tokens, too."""
    starts = [start for start, _, _ in spans]
    return [text[start:after] for start, after in pairwise([*starts, spans[-1][1]])] if spans else []


def _headers(text: str, spans: Sequence[tuple[int, int, int]]) -> Iterator[str]:
    """For each sentence the first row of the table that it continues, or nothing."""
    header, before = "", 0
    for start, end, _ in spans:
        row = cells_of(text[start:end])
        continues = row != "" and header != "" and text.count("\n", before, start) == 1
        yield header if continues else ""
        if not continues:
            header = row
        before = end
