"""Lets an answer pass sentence by sentence, each once it is judged."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import replace

from rag_core.answering.judging.verdicts import verdict
from rag_core.events import CitationAdded, Event, Listener, TextDelta, add_citation
from rag_core.text.sentences import FENCED, sentence_spans
from rag_core.types import Answer, Citation

_CODE = re.compile(rf"{FENCED.pattern}|(?P<ticks>`+)[^\n]*?(?P=ticks)", re.MULTILINE | re.DOTALL)
_MARKERS = re.compile(r"(?:\s*\[\^?\d+\])*\s*")


class SentenceGate:
    """`listen` takes what a writer tells. A sentence is an answer of its own, offsets and all, until it is let through.

    `answer` is what has been let through, and `cited` the share of its sentences with a citation; `left_out` counts
    those that were not.
    """

    def __init__(
        self, judged: Callable[[Answer], Awaitable[Answer]], passes: Callable[[Answer], bool], emit: Listener
    ) -> None:
        self._judged, self._passes, self._tell = judged, passes, emit
        self._held, self._read = Answer(text=""), 0
        self.answer = Answer(text="")
        self._passed = self._cited = self.left_out = 0

    @property
    def cited(self) -> float:
        return self._cited / self._passed if self._passed else 0.0

    async def listen(self, event: Event) -> None:
        match event:
            case TextDelta(text):
                self._held = replace(self._held, text=self._held.text + text)
                while size := first_sentence(self._held.text):
                    await self._judge(size)
            case CitationAdded(citation):
                added = add_citation(self._held.citations, _behind(citation, self._read))
                self._held = replace(self._held, citations=added)
            case _:
                await self._tell(event)

    async def finish(self) -> None:
        if self._held.text.strip():
            await self._judge(len(self._held.text))

    async def _judge(self, size: int) -> None:
        """The first `size` characters of what is held."""
        sentence, rest = _split(self._held, size)
        sentence = await self._judged(sentence)  # if that is cancelled, the sentence is still held
        self._held, self._read = rest, self._read + size
        if self._passes(sentence):
            await self._let_through(sentence)
        else:
            self.left_out += 1

    async def _let_through(self, sentence: Answer) -> None:
        before = len(self.answer.citations)
        self.answer = _joined(self.answer, sentence)
        self._passed += 1
        self._cited += bool(sentence.citations)
        await self._tell(TextDelta(sentence.text))
        for citation in self.answer.citations[before:]:
            await self._tell(CitationAdded(citation))


def first_sentence(text: str) -> int:
    """Where the second sentence begins, behind the first one's markers; 0 if it has not begun yet. Code is not cut:
    what follows the cut would be code no more."""
    whole = _CODE.sub(lambda code: "x" * len(code[0]), text)
    starts = [start for start, _ in sentence_spans(whole)[1:]]
    for start in starts:
        markers = _MARKERS.match(whole, start)
        begun = markers.end() if markers else start
        if begun < len(text):
            return begun
    return 0


def _split(answer: Answer, size: int) -> tuple[Answer, Answer]:
    """Before and after: a citation goes where its marker does."""
    first = tuple(each for each in answer.citations if each.spans[0][0] < size)
    rest = tuple(_behind(each, size) for each in answer.citations if each.spans[0][0] >= size)
    return Answer(text=answer.text[:size], citations=first), Answer(text=answer.text[size:], citations=rest)


def _joined(answer: Answer, sentence: Answer) -> Answer:
    """Both texts, with what is known of each."""
    place = len(answer.text)
    citations = (*answer.citations, *(_moved(each, place) for each in sentence.citations))
    claims = tuple(replace(each, start=each.start + place, end=each.end + place) for each in sentence.verdict.claims)
    so_far = verdict((*answer.verdict.claims, *claims), sentence.verdict.method or answer.verdict.method)
    return replace(answer, text=answer.text + sentence.text, citations=citations, verdict=so_far)


def _behind(citation: Citation, place: int) -> Citation:
    """As an answer that begins there has it."""
    spans = tuple((start - place, end - place) for start, end in citation.spans if start >= place)
    start, end = (max(0, each - place) for each in citation.claim)
    return replace(citation, spans=spans, claim=(start, end))


def _moved(citation: Citation, by: int) -> Citation:
    spans = tuple((start + by, end + by) for start, end in citation.spans)
    return replace(citation, spans=spans, claim=(citation.claim[0] + by, citation.claim[1] + by))
