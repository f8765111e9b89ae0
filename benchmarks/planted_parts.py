"""Parts of a pipeline that lose answers on purpose, each in one way. `benchmarks.planted_faults` plants them."""

import json
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

from rag_core.events import Listener, ignore_event
from rag_core.models.chat import ChatMessage, Completion
from rag_core.protocols import Answerer, Generator, Leg, Ranking, Reranker
from rag_core.retrieval.fusion import Candidates
from rag_core.retrieval.hybrid import Fusion
from rag_core.text.sentences import sentence_spans
from rag_core.types import Answer, Chunk, Claim, Document, Passage, Prompt, Query, Reply, Verdict, chunk_id

RUINED_QUESTION = "and what about that one?"
INVENTION = "According to an unpublished survey, seventeen purple zeppelins landed quietly near Zanzibar"
_MARKER = re.compile(r"\[\d+\]")


class CuttingChunker:
    """A chunker that cuts each answer in half, and loses the second half. `path` is of the words to cut, by uri."""

    def __init__(self, path: str) -> None:
        self._words: Mapping[str, Sequence[str]] = json.loads(Path(path).read_text(encoding="utf-8"))

    def split(self, document_id: UUID, document: Document) -> tuple[Chunk, ...]:
        text = document.text
        gaps = sorted(
            (match.start() + len(words) // 2, match.end())
            for words in self._words.get(document.uri, ())
            for match in re.finditer(re.escape(words), text)
        )
        chunks: list[Chunk] = []
        start = 0
        for gap_start, gap_end in [*gaps, (len(text), len(text))]:
            if part := text[start:gap_start].strip():
                id, ordinal = chunk_id(document_id, part, len(chunks)), len(chunks)
                start += text[start:gap_start].index(part)
                end = start + len(part)
                chunks.append(Chunk(id=id, document_id=document_id, ordinal=ordinal, text=part, start=start, end=end))
            start = max(start, gap_end)
        return tuple(chunks)


@dataclass(frozen=True)
class HalfLeg:
    """A leg that ranks only half of the chunks, always the same."""

    leg: Leg

    async def rank(self, query: Query, k: int) -> Ranking:
        return [(id, score) for id, score in await self.leg.rank(query, 2 * k) if id.int % 2][:k]

    async def score(self, query: Query, chunk_ids: Sequence[UUID]) -> list[float]:
        return await self.leg.score(query, chunk_ids)


@dataclass(frozen=True)
class FlippedFusion:
    """A fusion whose worst chunk comes first."""

    fusion: Fusion

    def __call__(self, candidates: Candidates) -> Ranking:
        return [(id, -score) for id, score in reversed(self.fusion(candidates))]


@dataclass(frozen=True)
class ReversedReranker:
    reranker: Reranker

    async def score(self, question: str, texts: Sequence[str]) -> list[float]:
        return [-score for score in await self.reranker.score(question, texts)]


class LastPassageGenerator:
    """A generator that ignores all passages but the last, and quotes the first sentence of that."""

    async def stream(self, prompt: Prompt) -> AsyncGenerator[str, None]:
        passage = prompt.passages[-1]
        start, end = next(iter(sentence_spans(passage.text)))
        yield f"{passage.text[start:end].strip()} [{passage.n}]"


class InventingGenerator:
    """A generator that states what no passage says, and cites the first one for it."""

    async def stream(self, prompt: Prompt) -> AsyncGenerator[str, None]:
        yield f"{INVENTION} [{prompt.passages[0].n}]."


class RefusingGenerator:
    async def stream(self, prompt: Prompt) -> AsyncGenerator[str, None]:  # noqa: ARG002
        pieces: tuple[str, ...] = ()
        for piece in pieces:
            yield piece


@dataclass(frozen=True)
class MisquotingGenerator:
    """A generator that always cites the last passage."""

    generator: Generator

    async def stream(self, prompt: Prompt) -> AsyncGenerator[str, None]:
        text = "".join([piece async for piece in self.generator.stream(prompt)])
        yield _MARKER.sub(f"[{prompt.passages[-1].n}]", text)


class GarbageModel:
    """A language model whose replies are not the requested JSON."""

    async def complete(
        self,
        messages: Sequence[ChatMessage],  # noqa: ARG002
        *,
        schema: Mapping[str, Any] | None = None,  # noqa: ARG002
        logprobs: bool = False,  # noqa: ARG002
        max_tokens: int,  # noqa: ARG002
    ) -> Completion:
        return Completion(text="As a language model I like trains.")


class DenyingJudge:
    """A judge that supports no answer."""

    async def judge(self, answer: Answer, passages: Sequence[Passage]) -> Verdict:  # noqa: ARG002
        claim = Claim(start=0, end=len(answer.text), grade="unsupported", score=0.0)
        return Verdict(grade="unsupported", score=0.0, claims=(claim,), method="denial")


@dataclass(frozen=True)
class RuinousAnswerer:
    """An answerer that searches another text than the question."""

    answerer: Answerer

    async def answer(self, query: Query, emit: Listener = ignore_event) -> Reply:
        reply = await self.answerer.answer(replace(query, text=RUINED_QUESTION), emit)
        return replace(reply, query=query, standalone=RUINED_QUESTION)
