"""Generators, judges and passages that do as they are told. tests/contract/test_judges.py holds the judge to what real
ones promise."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID, uuid5

from rag_core.answering.judging.statements import statements
from rag_core.answering.judging.verdicts import claim, verdict
from rag_core.types import Answer, Chunk, Citation, Grade, Hit, Origin, Passage, Prompt, Query, Verdict

IDS = UUID(int=7)


def passage(n: int, text: str, start: int = 0, title: str = "", uri: str = "") -> Passage:
    document = uuid5(IDS, uri or str(n))
    chunk = Chunk(
        id=uuid5(document, text), document_id=document, ordinal=0, text=text, start=start, end=start + len(text)
    )
    origin = Origin(uri=uri or f"file:///{n}.md", title=title or f"Document {n}")
    return Passage(n=n, hit=Hit(chunk=chunk, origin=origin, score=1 / n), text=text, start=start, chunks=(chunk,))


def numbered(hits: Sequence[Hit]) -> tuple[Passage, ...]:
    """Each hit a passage."""
    return tuple(
        Passage(n=n, hit=hit, text=hit.chunk.text, start=hit.chunk.start, chunks=(hit.chunk,))
        for n, hit in enumerate(hits, start=1)
    )


@dataclass(kw_only=True)
class ScriptedRetriever:
    """It takes `seconds`, and then raises `error` if any."""

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
    """Streams these answers, one a call, in their pieces; then raises `error` if any, but in the first `sound` calls.
    `seconds` pass before each piece.

    `prompts` are those that it was given, and `closed` counts the streams that came to an end, whichever way.
    """

    answers: Sequence[Sequence[str]]
    seconds: float = 0.0
    error: Exception | None = None
    sound: int = 0
    prompts: list[Prompt] = field(default_factory=list)
    closed: int = 0

    async def stream(self, prompt: Prompt) -> AsyncGenerator[str, None]:
        self.prompts.append(prompt)
        try:
            for piece in self.answers[len(self.prompts) - 1]:
                await asyncio.sleep(self.seconds)
                yield piece
            if self.error and len(self.prompts) > self.sound:
                raise self.error
        finally:
            self.closed += 1


@dataclass(kw_only=True)
class ScriptedJudge:
    """A sentence has the grade of the first of these words that stands in it, and is supported if none does."""

    words: Mapping[str, Grade] = field(default_factory=dict)
    seconds: float = 0.0
    error: Exception | None = None
    judged: list[str] = field(default_factory=list)

    async def judge(self, answer: Answer, passages: Sequence[Passage]) -> Verdict:
        self.judged.append(answer.text)
        await asyncio.sleep(self.seconds)
        if self.error:
            raise self.error
        grades = [(each, self._grade(answer.text[each.start : each.end])) for each in statements(answer, passages)]
        return verdict([claim(each, grade, float(grade == "supported")) for each, grade in grades], "scripted")

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
