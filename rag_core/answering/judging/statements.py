"""What an answer states, sentence by sentence, and which passages each names as its source."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rag_core.text.sentences import FENCED, sentence_spans
from rag_core.types import Answer, Citation, Passage

_HEADING = re.compile(r"^[ \t]*#{1,6}[ \t][^\n]*", re.MULTILINE)
_BULLET = re.compile(r"\A\s*(?:[-*+•]|\d{1,3}[.)])[ \t]+(?=\S)")
_SOURCES = re.compile(r"\n\n(?:Sources(?:\n\d+\. [^\n]*)+|\[\^\d+\]: [^\n]*(?:\n\[\^\d+\]: [^\n]*)*)\Z")
_SOURCE = re.compile(r"^(?:\[\^(?P<noted>\d+)\]:|(?P<listed>\d+)\.) (?P<told>[^\n]*)", re.MULTILINE)
_NUMBERED = re.compile(r"^[ \t]*(\d{1,3}\.)[ \t]+(?=\S|\Z)", re.MULTILINE)
_WORD = re.compile(r"\w")
_WORDS = re.compile(r"\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A sentence, by its code points in the answer. `text` is `bare`, and without markers.

    `passages` are those that it cites, or all where it cites none.
    """

    start: int
    end: int
    text: str
    citations: tuple[Citation, ...]
    passages: tuple[Passage, ...]


def statements(answer: Answer, passages: Sequence[Passage]) -> list[Statement]:
    """In text order: the claim of every citation, and each sentence of which a part is in no such claim.

    Headings, code and the list of sources that ends an answer state nothing.
    """
    text = _without_markers(answer)
    claims = {citation.claim for citation in answer.citations}
    spans = sorted(claims | set(_unclaimed(text, claims)))
    return [_statement(text, span, answer.citations, passages) for span in spans if _WORD.search(text, *span)]


def bare(sentence: str) -> str:
    """On one line, without a list's bullet, and without the bars around a table's row."""
    return " ".join(_BULLET.sub("", sentence).strip("| \t\n").split())


def premise(passage: Passage) -> str:
    """What a claim is judged by: the passage's text, below title and headings of its first chunk."""
    return "\n".join(filter(None, (passage.chunks[0].prefix, passage.text)))


def has_words(answer: Answer) -> bool:
    """Besides markers, numbers of lists, and the list of sources."""
    text = _blanked(answer.text, [*_markers(answer), *_sources(answer)])
    return bool(_WORD.search(_blanked(text, _list_numbers(text))))


def _without_markers(answer: Answer) -> str:
    """Of the same length."""
    silent = [found.span() for pattern in (FENCED, _HEADING) for found in pattern.finditer(answer.text)]
    return _blanked(answer.text, [*silent, *_sources(answer), *_markers(answer)])


def _markers(answer: Answer) -> list[tuple[int, int]]:
    return [span for citation in answer.citations for span in citation.spans]


def _sources(answer: Answer) -> list[tuple[int, int]]:
    """The list that ends it, in footnote and endnote style. One that tells more than it cites is a model's own."""
    found = _SOURCES.search(answer.text)
    if found is None or not all(_names_source(line, answer.citations) for line in _SOURCE.finditer(found[0])):
        return []
    return [found.span()]


def _names_source(line: re.Match[str], citations: Sequence[Citation]) -> bool:
    """A link in its title may have become `(link removed)`."""
    n = int(line["noted"] or line["listed"])
    named = [f"{each.title} {each.uri} page {each.page} link removed" for each in citations if each.n == n]
    return bool(named) and {*_WORDS.findall(named[0])}.issuperset(_WORDS.findall(line["told"]))


def _unclaimed(text: str, claims: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """A list's number counts as a sentence where sentences are split."""
    rest = _blanked(text, [*claims, *_list_numbers(text)])
    return (span for span in sentence_spans(text) if _WORD.search(rest, *span))


def _list_numbers(text: str) -> Iterator[tuple[int, int]]:
    return (found.span(1) for found in _NUMBERED.finditer(text))


def _blanked(text: str, spans: Iterable[tuple[int, int]]) -> str:
    for start, end in spans:
        text = text[:start] + re.sub(r"[^\n]", " ", text[start:end]) + text[end:]
    return text


def _statement(
    text: str, span: tuple[int, int], citations: Sequence[Citation], passages: Sequence[Passage]
) -> Statement:
    start, end = span
    own = tuple(each for each in citations if each.claim[0] < end and start < each.claim[1])
    cited = tuple(passage for passage in passages if passage.n in {each.n for each in own})
    return Statement(start=start, end=end, text=bare(text[start:end]), citations=own, passages=cited or tuple(passages))
