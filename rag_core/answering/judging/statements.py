"""The statements of an answer, sentence by sentence, and the passages that each cites."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rag_core.text.sentences import CODE_BLOCK, sentence_spans
from rag_core.types import Answer, Citation, Passage

_HEADING = re.compile(r"^[ \t]*#{1,6}[ \t][^\n]*", re.MULTILINE)
_BULLET = re.compile(r"\A\s*(?:[-*+•]|\d{1,3}[.)])[ \t]+(?=\S)")
_SOURCE_LIST = re.compile(r"\n\n(?:Sources(?:\n\d+\. [^\n]*)+|\[\^\d+\]: [^\n]*(?:\n\[\^\d+\]: [^\n]*)*)\Z")
_SOURCE = re.compile(r"^(?:\[\^(?P<footnote>\d+)\]:|(?P<endnote>\d+)\.) (?P<text>[^\n]*)", re.MULTILINE)
_LIST_NUMBER = re.compile(r"^[ \t]*(\d{1,3}\.)[ \t]+(?=\S|\Z)", re.MULTILINE)
_NO_NEWLINE = re.compile(r"[^\n]")
_WORD = re.compile(r"\w")
_WORDS = re.compile(r"\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A sentence; `start` and `end` are code points of the answer. `text` has no layout and no markers.

    `passages` are those that it cites, or all if it cites none.
    """

    start: int
    end: int
    text: str
    citations: tuple[Citation, ...]
    passages: tuple[Passage, ...]


def find_statements(answer: Answer, passages: Sequence[Passage]) -> list[Statement]:
    """The claim of every citation, and each sentence that is not entirely within claims, in text order.

    Headings, code and the list of sources at the end state nothing, nor does the notice before quoted passages.
    """
    silent = [match.span() for pattern in (CODE_BLOCK, _HEADING) for match in pattern.finditer(answer.text)]
    text = _blank_spans(answer.text, [*silent, *_source_list_spans(answer), *_marker_spans(answer)])
    claims = {citation.claim for citation in answer.citations}
    # Sentences are also split after the number of a list item, which alone is not a statement.
    unclaimed = _blank_spans(text, [*claims, *_list_number_spans(text)])
    sentences = {span for span in sentence_spans(text) if _WORD.search(unclaimed, *span)}
    statements = []
    for start, end in sorted(claims if answer.finish == "passages" else claims | sentences):
        if not _WORD.search(text, start, end):
            continue
        citations = tuple(
            citation for citation in answer.citations if citation.claim[0] < end and start < citation.claim[1]
        )
        numbers = {citation.n for citation in citations}
        cited = tuple(passage for passage in passages if passage.n in numbers)
        statement = Statement(
            start=start,
            end=end,
            text=strip_layout(text[start:end]),
            citations=citations,
            passages=cited or tuple(passages),
        )
        statements.append(statement)
    return statements


def strip_layout(sentence: str) -> str:
    """The sentence on one line, without a list's bullet and without the bars around a table's row."""
    return " ".join(_BULLET.sub("", sentence).strip("| \t\n").split())


def premise(passage: Passage) -> str:
    """The text that a claim is judged by: the title and headings of the passage's first chunk, and its text."""
    return "\n".join(filter(None, (passage.chunks[0].prefix, passage.text)))


def has_words(answer: Answer) -> bool:
    """True if the answer has words besides markers, the numbers of list items, and the list of sources."""
    text = _blank_spans(answer.text, [*_marker_spans(answer), *_source_list_spans(answer)])
    return bool(_WORD.search(_blank_spans(text, _list_number_spans(text))))


def _marker_spans(answer: Answer) -> list[tuple[int, int]]:
    return [span for citation in answer.citations for span in citation.spans]


def _source_list_spans(answer: Answer) -> list[tuple[int, int]]:
    """The span of the list of sources at the end, if there is one.

    A list with other words than those of the citations was written by the model, and is not one. Links in a title can
    have become `(link removed)`.
    """
    sources = _SOURCE_LIST.search(answer.text)
    if sources is None:
        return []
    for line in _SOURCE.finditer(sources[0]):
        n = int(line["footnote"] or line["endnote"])
        citation = next((citation for citation in answer.citations if citation.n == n), None)
        if citation is None:
            return []
        source = f"{citation.title} {citation.uri} page {citation.page} link removed"
        if not {*_WORDS.findall(source)}.issuperset(_WORDS.findall(line["text"])):
            return []
    return [sources.span()]


def _list_number_spans(text: str) -> Iterator[tuple[int, int]]:
    return (match.span(1) for match in _LIST_NUMBER.finditer(text))


def _blank_spans(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Replaces the spans by spaces, except for newlines; the text keeps its length. Spans can overlap."""
    parts, copied = [], 0
    for start, end in sorted(spans):
        if end > copied:
            parts += [text[copied:start], _NO_NEWLINE.sub(" ", text[max(start, copied) : end])]
            copied = end
    return "".join([*parts, text[copied:]])
