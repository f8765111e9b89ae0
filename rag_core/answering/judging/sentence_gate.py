"""The gate that passes an answer on sentence by sentence, each after it is judged."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import replace

from rag_core.answering.judging.verdicts import verdict_from_claims
from rag_core.events import CitationAdded, Event, Listener, TextDelta, add_citation
from rag_core.text.sentences import CODE_BLOCK, sentence_spans
from rag_core.types import Answer, Citation

_CODE = re.compile(rf"{CODE_BLOCK.pattern}|(?P<ticks>`+)[^\n]*?(?P=ticks)", re.MULTILINE | re.DOTALL)
_MARKERS = re.compile(r"(?:\s*\[\^?\d+\])*\s*")

MAX_PIECE = 200
"""The most text that is added before the held text is searched for the end of a sentence, while it is short.

A long held text, such as a block of code, is searched after each eighth more: searching it after each piece would take
time that grows with the square of its length.
"""


class SentenceGate:
    """A gate between a writer, whose events go to `receive`, and `emit`.

    `judge` receives each sentence as an answer, with offsets from its own start, and `passes` decides whether the
    judged sentence is emitted. `answer` is the text emitted so far; `rejected` counts the other sentences.
    """

    def __init__(
        self, judge: Callable[[Answer], Awaitable[Answer]], passes: Callable[[Answer], bool], emit: Listener
    ) -> None:
        self._judge, self._passes, self._emit = judge, passes, emit
        self._held, self._held_offset = Answer(text=""), 0
        self.answer = Answer(text="")
        self._waiting, self._waiting_length = list[str](), 0
        self._emitted = self._cited = self.rejected = 0

    @property
    def cited_share(self) -> float:
        """The share of the emitted sentences that have a citation, from 0 to 1."""
        return self._cited / self._emitted if self._emitted else 0.0

    async def receive(self, event: Event) -> None:
        match event:
            case TextDelta(text):
                for start in range(0, len(text), MAX_PIECE):
                    piece = text[start : start + MAX_PIECE]
                    self._waiting.append(piece)
                    self._waiting_length += len(piece)
                    if self._waiting_length >= len(self._held.text) / 8 - MAX_PIECE:
                        await self._judge_sentences()
            case CitationAdded(citation):
                citations = add_citation(self._held.citations, _rebase_citation(citation, self._held_offset))
                self._held = replace(self._held, citations=citations)
            case _:
                await self._emit(event)

    async def finish(self) -> None:
        """Judges the rest of the text."""
        await self._judge_sentences()
        if self._held.text.strip():
            await self._judge_first(len(self._held.text))

    async def _judge_sentences(self) -> None:
        """Judges the complete sentences of the held text."""
        self._held = replace(self._held, text="".join([self._held.text, *self._waiting]))
        self._waiting, self._waiting_length = [], 0
        while length := first_sentence_length(self._held.text):
            await self._judge_first(length)

    async def _judge_first(self, length: int) -> None:
        """Judges the first `length` characters of the held text, and emits or rejects them."""
        citations, text = self._held.citations, self._held.text
        # A citation belongs to the part with its marker.
        first = tuple(citation for citation in citations if citation.spans[0][0] < length)
        others = tuple(_rebase_citation(citation, length) for citation in citations if citation.spans[0][0] >= length)
        # If the judging is cancelled, the sentence is still held.
        sentence = await self._judge(Answer(text=text[:length], citations=first))
        self._held, self._held_offset = Answer(text=text[length:], citations=others), self._held_offset + length
        if not self._passes(sentence):
            self.rejected += 1
            return
        citations_before = len(self.answer.citations)
        self.answer = _append_sentence(self.answer, sentence)
        self._emitted += 1
        self._cited += bool(sentence.citations)
        await self._emit(TextDelta(sentence.text))
        for citation in self.answer.citations[citations_before:]:
            await self._emit(CitationAdded(citation))


def first_sentence_length(text: str) -> int:
    """The length of the first sentence and its markers; 0 if the second sentence has not begun yet.

    Code is not split: its second part would no longer be code.
    """
    masked = _CODE.sub(lambda code: "x" * len(code[0]), text)
    for start, _ in sentence_spans(masked)[1:]:
        markers = _MARKERS.match(masked, start)
        next_start = markers.end() if markers else start
        if next_start < len(text):
            return next_start
    return 0


def _append_sentence(answer: Answer, sentence: Answer) -> Answer:
    """Joins the texts, citations and claims of both; the verdict is computed again."""
    offset = len(answer.text)
    citations = tuple(
        replace(
            citation,
            spans=tuple((start + offset, end + offset) for start, end in citation.spans),
            claim=(citation.claim[0] + offset, citation.claim[1] + offset),
        )
        for citation in sentence.citations
    )
    claims = tuple(
        replace(claim, start=claim.start + offset, end=claim.end + offset) for claim in sentence.verdict.claims
    )
    verdict = verdict_from_claims((*answer.verdict.claims, *claims), sentence.verdict.method or answer.verdict.method)
    return replace(answer, text=answer.text + sentence.text, citations=(*answer.citations, *citations), verdict=verdict)


def _rebase_citation(citation: Citation, offset: int) -> Citation:
    """The citation in an answer that begins at `offset`. Earlier spans are dropped."""
    spans = tuple((start - offset, end - offset) for start, end in citation.spans if start >= offset)
    start, end = (max(0, bound - offset) for bound in citation.claim)
    return replace(citation, spans=spans, claim=(start, end))
