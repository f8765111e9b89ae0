"""Which sentences of a passage may stand in an answer by themselves."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rag_core.text.analysis import terms
from rag_core.text.sentences import FENCED, sentence_spans
from rag_core.types import Passage

_NO_SENTENCE = re.compile(r"#{1,6}\s|[\W\d_]*$")
_RULE = re.compile(r"\|[\s|:-]+")
_BARS = "| \t"
_BULLET = re.compile(r"(?:[-*+•]|\d{1,3}[.)])[ \t]+(?=\S)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A sentence, list item or table row, by its code points in the passage.

    `terms` are those of its words, `near` also of the sentences on both sides of it.
    """

    passage: Passage
    start: int
    end: int
    terms: frozenset[str]
    near: frozenset[str]

    @property
    def text(self) -> str:
        """In one line: a sentence may go on over several."""
        return " ".join(self.passage.text[self.start : self.end].split())


def candidates(passages: Sequence[Passage]) -> list[Candidate]:
    """Those that have words, each text once, as it stands in the first of the passages.

    Headings, a table's header and code only tell what is beside them.
    """
    found = [candidate for passage in passages for candidate in _candidates(passage)]
    return list({candidate.text: candidate for candidate in reversed(found)}.values())[::-1]


def _candidates(passage: Passage) -> Iterator[Candidate]:
    text, spans = passage.text, sentence_spans(passage.text)
    own = [frozenset(terms(text[start:end], passage.language)) for start, end in spans]
    code = [found.span() for found in FENCED.finditer(text)]
    rules = {start for start, end in spans if _RULE.fullmatch(text, start, end)}
    for place, (start, end) in enumerate(spans):
        header = any(following in rules for following, _ in spans[place + 1 : place + 2])
        if header or _NO_SENTENCE.match(text, start, end) or _within(start, code):
            continue
        near = frozenset[str]().union(*own[max(0, place - 1) : place + 2])
        bare = _bare(text, start, end)
        yield Candidate(passage=passage, start=bare[0], end=bare[1], terms=own[place], near=near)


def _within(place: int, spans: Sequence[tuple[int, int]]) -> bool:
    return any(start <= place < end for start, end in spans)


def _bare(text: str, start: int, end: int) -> tuple[int, int]:
    """Without a list's bullet, the bars around a table's row, and a plain text's heading in capitals."""
    if bullet := _BULLET.match(text, start, end):
        return bullet.end(), end
    if text[start] == "|":
        row = text[start:end]
        return start + len(row) - len(row.lstrip(_BARS)), start + len(row.rstrip(_BARS))
    first, _, rest = text[start:end].partition("\n")
    return (end - len(rest.lstrip()) if rest and first.isupper() else start), end
