"""What an answer states, sentence by sentence, and which passages each names as its source."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rag_core.ingestion.chunking.sentences import FENCED, sentence_spans
from rag_core.types import Answer, Citation, Passage

_HEADING = re.compile(r"^[ \t]*#{1,6}[ \t][^\n]*", re.MULTILINE)
_BULLET = re.compile(r"\A\s*(?:[-*+•]|\d{1,3}[.)])[ \t]+(?=\S)")
_SOURCES = re.compile(r"^\[\^\d+\]: [^\n]*|^Sources(?:\n\d+\. [^\n]*)*\s*\Z", re.MULTILINE)
_NUMBERED = re.compile(r"^[ \t]*(\d{1,3}\.)[ \t]+(?=\S)", re.MULTILINE)
_WORD = re.compile(r"\w")


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

    Headings, code and lists of sources state nothing.
    """
    text = _without_markers(answer)
    claims = {citation.claim for citation in answer.citations}
    spans = sorted(claims | set(_unclaimed(text, claims)))
    return [_statement(text, span, answer.citations, passages) for span in spans if _WORD.search(text, *span)]


def bare(sentence: str) -> str:
    """On one line, without a list's bullet, and without the bars around a table's row."""
    return " ".join(_BULLET.sub("", sentence).strip("| \t\n").split())


def _without_markers(answer: Answer) -> str:
    """Of the same length."""
    silent = [found.span() for pattern in (FENCED, _HEADING, _SOURCES) for found in pattern.finditer(answer.text)]
    markers = [span for citation in answer.citations for span in citation.spans]
    return _blanked(answer.text, [*silent, *markers])


def _unclaimed(text: str, claims: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """A list's number counts as a sentence where sentences are split."""
    rest = _blanked(text, [*claims, *(found.span(1) for found in _NUMBERED.finditer(text))])
    return (span for span in sentence_spans(text) if _WORD.search(rest, *span))


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
