"""Scripted retrievers, generators and judges, and passages.

tests/contract/test_judges.py checks that the scripted judge keeps the promises of real ones.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID, uuid5

from rag_core.answering.judging.statements import find_statements
from rag_core.answering.judging.verdicts import claim_from_statement, verdict_from_claims
from rag_core.types import Answer, Chunk, Citation, Grade, Hit, Origin, Passage, Prompt, Query, Verdict

IDS = UUID(int=7)


def passage(n: int, text: str, start: int = 0, title: str = "", uri: str = "", language: str = "") -> Passage:
    document = uuid5(IDS, uri or str(n))
    chunk = Chunk(
        id=uuid5(document, text), document_id=document, ordinal=0, text=text, start=start, end=start + len(text)
    )
    origin = Origin(uri=uri or f"file:///{n}.md", title=title or f"Document {n}", language=language)
    return Passage(n=n, hit=Hit(chunk=chunk, origin=origin, score=1 / n), text=text, start=start, chunks=(chunk,))


def passages_from_hits(hits: Sequence[Hit]) -> tuple[Passage, ...]:
    """One passage per hit, numbered from 1."""
    return tuple(
        Passage(n=n, hit=hit, text=hit.chunk.text, start=hit.chunk.start, chunks=(hit.chunk,))
        for n, hit in enumerate(hits, start=1)
    )


@dataclass(kw_only=True)
class ScriptedRetriever:
    """A Retriever that waits `seconds`, and then raises `error`, or returns `hits` without one."""

    hits: Sequence[Hit]
    seconds: float = 0.0
    error: Exception | None = None

    async def retrieve(self, query: Query, k: int) -> list[Hit]:  # noqa: ARG002
        await asyncio.sleep(self.seconds)
        if self.error:
            raise self.error
        return list(self.hits[:k])


@dataclass(kw_only=True)
class ScriptedGenerator:
    """A Generator that streams one of `answers` per call, in pieces, and then raises `error` if there is one.

    The first `successful_calls` calls do not raise it. `seconds` pass before each piece. `prompts` are those that it
    received, and `closed` counts the streams that have ended, with or without an error.
    """

    answers: Sequence[Sequence[str]]
    seconds: float = 0.0
    error: Exception | None = None
    successful_calls: int = 0
    prompts: list[Prompt] = field(default_factory=list)
    closed: int = 0

    async def stream(self, prompt: Prompt) -> AsyncGenerator[str, None]:
        self.prompts.append(prompt)
        try:
            for piece in self.answers[len(self.prompts) - 1]:
                await asyncio.sleep(self.seconds)
                yield piece
            if self.error and len(self.prompts) > self.successful_calls:
                raise self.error
        finally:
            self.closed += 1


@dataclass(kw_only=True)
class ScriptedJudge:
    """A Judge that grades a sentence by the first of `words` in it; a sentence with none of them is supported."""

    words: Mapping[str, Grade] = field(default_factory=dict)
    seconds: float = 0.0
    error: Exception | None = None
    judged: list[str] = field(default_factory=list)

    async def judge(self, answer: Answer, passages: Sequence[Passage]) -> Verdict:
        self.judged.append(answer.text)
        await asyncio.sleep(self.seconds)
        if self.error:
            raise self.error
        claims = []
        for statement in find_statements(answer, passages):
            grade = self._grade(answer.text[statement.start : statement.end])
            claims.append(claim_from_statement(statement, grade, float(grade == "supported")))
        return verdict_from_claims(claims, "scripted")

    def _grade(self, sentence: str) -> Grade:
        return next((grade for word, grade in self.words.items() if word in sentence), "supported")


def citation(n: int, claim: tuple[int, int], span: tuple[int, int]) -> Citation:
    return Citation(
        n=n,
        chunk_id=uuid5(IDS, f"chunk {n}"),
        document_id=uuid5(IDS, str(n)),
        collection="default",
        title=f"Document {n}",
        uri=f"file:///{n}.md",
        quote="As it stands there.",
        start=0,
        end=19,
        spans=(span,),
        claim=claim,
        score=1.0,
    )
