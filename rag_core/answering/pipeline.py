"""From a question to a reply: what was said, what is found, what of it is read, what is written and held to it."""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf

from anyio import to_thread

from rag_core.answering.citing.citation_notes import plain
from rag_core.answering.citing.citations import Citer
from rag_core.answering.generation.history import recent
from rag_core.answering.judging.hallucination import Guard
from rag_core.errors import GenerationError, RagError, StageTimeoutError, TruncatedError
from rag_core.events import (
    Degraded,
    Event,
    Listener,
    RunFailed,
    RunFinished,
    RunStarted,
    Sources,
    StageFinished,
    StageStarted,
    TextDelta,
    Usage,
    nobody,
)
from rag_core.protocols import Conversations, Generator, Retriever
from rag_core.stage import Stage, attempt, recording, skip, stage
from rag_core.telemetry.operation import asked
from rag_core.text.token_counts import EstimatedTokens
from rag_core.types import Answer, Finish, Hit, Message, Passage, Prompt, Query, Reply, StageReport, Style

ABSTAINED = "The sources do not answer this."
CLOSEST = 3
"""Documents that an abstention names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """`timeout`, in seconds, is a whole answer's; `stages` has those of stages that have less, by name.

    Of what was said before, the last `history` messages are read, if they have no more than `history_tokens` together.
    """

    timeout: float = inf
    stages: Mapping[str, float] = field(default_factory=dict)
    depth: int = 40
    history: int = 10
    history_tokens: int = 3000


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryPipeline:
    """An Answerer. `pack` chooses and numbers the passages of the hits; `hosts` are those that an answer may link to
    beside those of what it cites. `disabled` are stages of a search that the settings leave out, and why. `lengths` are
    texts' in tokens of the generator's."""

    retriever: Retriever
    pack: Callable[[Sequence[Hit]], tuple[Passage, ...]]
    generator: Generator
    guard: Guard
    conversations: Conversations
    style: Style
    limits: Limits
    hosts: frozenset[str] = frozenset()
    disabled: Mapping[str, str] = field(default_factory=dict)
    lengths: Callable[[Sequence[str]], list[int]] = EstimatedTokens().lengths

    async def answer(self, query: Query, tell: Listener = nobody) -> Reply:
        """RagError if there is nothing to answer with; what can be done without is left out, and reported.

        The work below ends when the caller is cancelled, or when the time is over.
        """
        async with _turn(query, tell, self.limits) as turn:
            history = await self._recall(turn)
            hits = await self._retrieve(turn)
            passages = await self._select(turn, hits)
            prompt = Prompt(query=query, passages=passages, hits=hits, history=history, style=self.style)
            answer = await self.guard.answer(prompt, partial(self._write, turn), tell)
            answer = await self._abstained(turn, prompt, answer)
            await self._remember(turn, answer)
            return await turn.finished(answer, passages)

    async def _recall(self, turn: "_Turn") -> tuple[Message, ...]:
        said = await self._said(turn)
        if not said:
            return ()
        return await to_thread.run_sync(recent, said, self.limits.history_tokens, self.lengths)

    async def _said(self, turn: "_Turn") -> Sequence[Message]:
        if not turn.query.session_id:
            skip("history", "there is no session")
            said = turn.query.history
            return said[max(0, len(said) - self.limits.history) :]
        return await attempt("history", self.conversations.history(turn.query, self.limits.history), otherwise=[])

    async def _retrieve(self, turn: "_Turn") -> tuple[Hit, ...]:
        async with turn.stage("retrieve") as found:
            hits = await self.retriever.retrieve(turn.query, self.limits.depth)
            found.ranking = tuple(hit.chunk.id for hit in hits)
            for name, reason in self.disabled.items():
                skip(name, reason)
        return tuple(hits)

    async def _select(self, turn: "_Turn", hits: Sequence[Hit]) -> tuple[Passage, ...]:
        async with turn.stage("select") as selected:
            passages = await to_thread.run_sync(self.pack, hits)
            selected.ranking = tuple(chunk.id for passage in passages for chunk in passage.chunks)
        await turn.tell(Sources(passages))
        return passages

    async def _write(self, turn: "_Turn", prompt: Prompt, tell: Listener) -> Answer:
        """Without text, an abstention."""
        if prompt.passages:
            return await self._generated(turn, prompt, tell)
        skip("generate", "nothing was found")
        return Answer(text="", finish="abstained")

    async def _generated(self, turn: "_Turn", prompt: Prompt, tell: Listener) -> Answer:
        """What was written before a generator broke off stands, as an answer that is `cut` or `broken`."""
        citer = Citer(prompt.passages, prompt.query.collection, prompt.style.citations, self.hosts)
        finish: Finish = "stop"
        before = len(turn.stages)
        try:
            async with turn.stage("generate"), aclosing(self._pieces(prompt)) as pieces:
                async for piece in pieces:
                    await _tell_all(citer.feed(piece), tell)
        except (GenerationError, StageTimeoutError) as error:
            finish = "cut" if isinstance(error, TruncatedError | StageTimeoutError) else "broken"
            await _tell_all(citer.finish(), tell)
            if not citer.answer.text.strip():
                raise
        else:
            await _tell_all(citer.finish(), tell)
        await _tell_usage(turn.stages[before:], tell)
        answer = citer.answer
        return replace(answer, finish=finish if answer.text else "abstained")

    async def _pieces(self, prompt: Prompt) -> AsyncGenerator[str, None]:
        """GenerationError for an error that has no name in `rag_core.errors`."""
        try:
            async with aclosing(self.generator.stream(prompt)) as pieces:
                async for piece in pieces:
                    yield piece
        except RagError:
            raise
        except Exception as error:  # what generators of anybody's own raise has no common root
            raise GenerationError(f"{type(error).__name__}: {error}") from error

    async def _abstained(self, turn: "_Turn", prompt: Prompt, answer: Answer) -> Answer:
        """An abstention with what was looked at instead."""
        if answer.finish != "abstained":
            return answer
        text = _abstention(prompt, self.hosts)
        await turn.tell(TextDelta(text))
        return replace(answer, text=text)

    async def _remember(self, turn: "_Turn", answer: Answer) -> None:
        if not turn.query.session_id:
            skip("remember", "there is no session")
        else:
            await attempt("remember", self.conversations.remember(turn.query, answer), otherwise=None)


@dataclass(slots=True, kw_only=True)
class _Turn:
    """One question's way, and how many of its stages have been told."""

    query: Query
    tell: Listener
    stages: list[StageReport]
    began: float = field(default_factory=time.perf_counter)
    told: int = 0

    @asynccontextmanager
    async def stage(self, name: str) -> AsyncIterator[Stage]:
        await self.report()
        await self.tell(StageStarted(name))
        async with stage(name) as here:
            yield here
        await self.report()

    async def report(self) -> None:
        """Tells of the stages that have ended since."""
        ended, self.told = self.stages[self.told :], len(self.stages)
        for report in ended:
            await self.tell(StageFinished(report))
            if report.error:
                await self.tell(Degraded(report.stage, report.error))

    async def finished(self, answer: Answer, passages: tuple[Passage, ...]) -> Reply:
        await self.report()
        seconds = time.perf_counter() - self.began
        await self.tell(RunFinished(answer.finish, answer.confidence, seconds))
        return Reply(
            query=self.query,
            standalone=self.query.text,
            answer=answer,
            passages=passages,
            stages=tuple(self.stages),
            seconds=seconds,
        )


@asynccontextmanager
async def _turn(query: Query, tell: Listener, limits: Limits) -> AsyncIterator[_Turn]:
    asked(query.text)
    with recording(min(limits.timeout, query.timeout), limits.stages) as stages:
        turn = _Turn(query=query, tell=tell, stages=stages)
        await tell(RunStarted(query))
        try:
            yield turn
        except Exception as error:
            await turn.report()
            await tell(RunFailed(str(error) if isinstance(error, RagError) else "an unexpected failure"))
            raise


async def _tell_all(events: Sequence[Event], tell: Listener) -> None:
    for event in events:
        await tell(event)


async def _tell_usage(reports: Sequence[StageReport], tell: Listener) -> None:
    """Of the stages together: what a model took before its first word counts as a stage of its own."""
    figures = [report.figures for report in reports if "prompt_tokens" in report.figures]
    if figures:
        names = ("prompt_tokens", "completion_tokens", "cached_tokens")
        await tell(Usage(*(sum(int(each.get(name, 0)) for each in figures) for name in names)))


def _abstention(prompt: Prompt, hosts: frozenset[str]) -> str:
    """Documents write their titles themselves, so these are filtered like an answer."""
    titles = list(dict.fromkeys(hit.origin.title or hit.origin.uri for hit in prompt.hits))[:CLOSEST]
    closest = ", ".join(filter(None, (plain(title, hosts) for title in titles)))
    return f"{ABSTAINED} Closest to the question: {closest}." if closest else ABSTAINED
