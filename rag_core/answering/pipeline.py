"""The pipeline from a question to a reply, in the stages history, understand, retrieve, select, generate, judge
and remember."""

import time
from collections import ChainMap
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf

from anyio import to_thread

from rag_core.answering.citing.citation_notes import sanitize_title
from rag_core.answering.citing.citations import Citer
from rag_core.answering.generation.confidence import estimate_retrieval_confidence
from rag_core.answering.generation.history import recent_messages
from rag_core.answering.generation.small_talk import SmallTalk
from rag_core.answering.judging.guard import Guard
from rag_core.answering.repetition import RepetitionCheck
from rag_core.conversation.clarification import (
    SpreadClarifier,
    format_clarification,
    mark_clarification,
    was_asked_back,
)
from rag_core.errors import GenerationError, RagError, StageTimeoutError, TruncatedError, translate_foreign_errors
from rag_core.events import (
    ClarificationAsked,
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
    Understood,
    Usage,
    ignore_event,
)
from rag_core.protocols import Conversations, Generator, Retriever, Understander
from rag_core.retrieval.query.understood import UNDERSTAND_STAGE, rewrite_query
from rag_core.stage import Stage, attempt, leave_seconds, recording, skip_stage, skip_stages, stage
from rag_core.telemetry.operation import record_documents, record_question
from rag_core.text.token_counts import EstimatedTokens
from rag_core.types import (
    Answer,
    Clarification,
    Finish,
    Hit,
    Message,
    Passage,
    Prompt,
    Query,
    Reply,
    StageReport,
    Style,
    Turn,
    Understanding,
)

ABSTENTION = "The sources do not answer this."
MAX_CLOSEST_DOCUMENTS = 3
"""The highest number of documents that an abstention names."""
REMEMBER_SECONDS = 1.0
"""The time to store a turn, even after the deadline: the user has read an answer that was cut short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerLimits:
    """The limits of one answer.

    `timeout` is in seconds, for all stages together. `stage_timeouts` holds the timeouts of single stages, in seconds,
    by name. `depth` is the number of hits to retrieve. The prompt's history has at most `history_messages` messages and
    `history_tokens` tokens.
    """

    timeout: float = inf
    stage_timeouts: Mapping[str, float] = field(default_factory=dict)
    depth: int = 40
    history_messages: int = 10
    history_tokens: int = 3000


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryPipeline:
    """An Answerer that retrieves, generates and judges.

    `pack` selects and numbers the passages. Answers can link to `hosts`, and to the hosts of the documents they cite.
    `disabled` holds, by stage name, why the settings leave out a part of the retrieval, such as `rerank`. `lengths`
    returns the number of tokens of each text for the generator; by default an estimate. `knows_cosines`: the confidence
    was calibrated with the encoder of the hits. `small_talk` answers the messages whose intent needs no sources.
    Without a `clarifier` nothing is asked back, and without `repetition` answers can repeat earlier ones.
    """

    retriever: Retriever
    pack: Callable[[Sequence[Hit]], tuple[Passage, ...]]
    generator: Generator
    guard: Guard
    understander: Understander
    conversations: Conversations
    style: Style
    limits: AnswerLimits
    hosts: frozenset[str] = frozenset()
    disabled: Mapping[str, str] = field(default_factory=dict)
    lengths: Callable[[Sequence[str]], list[int]] = EstimatedTokens().lengths
    knows_cosines: bool = False
    clarifier: SpreadClarifier | None = None
    repetition: RepetitionCheck | None = None
    small_talk: SmallTalk = field(default_factory=SmallTalk)

    async def answer(self, query: Query, emit: Listener = ignore_event) -> Reply:
        """Answers from the passages that the retriever finds. Without passages the answer is an abstention.

        A failure of the history, the reranker, the judge, the memory or one of several legs is reported as degraded.
        Raises RagError if retrieving or selecting fails, or if the generator fails before its first text. Cancelling
        the caller cancels the models' work, too.
        """
        async with _open_turn(query, emit, self.limits) as turn:
            history = await self._load_history(turn)
            turn.understanding = await self._understand(turn, history)
            intent = self.small_talk.intents.get(turn.understanding.intent)
            if not intent.needs_sources:
                text = await self.small_talk.reply(query.text, intent, await self._shorten_history(history))
                return await self._finish_without_sources(turn, Answer(text=text, finish="conversational"))
            searched = rewrite_query(query, turn.understanding)
            hits = await self._retrieve(turn, searched)
            if clarification := await self._clarify(turn, searched, history, hits):
                await turn.emit(ClarificationAsked(clarification))
                answer = Answer(text=format_clarification(clarification), finish="clarification")
                return replace(await self._finish_without_sources(turn, answer), clarification=clarification)
            passages = await self._select(turn, hits)
            prompt = Prompt(
                query=searched,
                passages=passages,
                hits=hits,
                history=await self._shorten_history(history),
                style=replace(self.style, pack=intent.prompt or self.style.pack),
                question=query.text if searched.text != query.text else "",
                drift=turn.understanding.drift,
                is_shift=turn.understanding.is_shift,
            )
            answer = await self._write(turn, prompt, history)
            answer = await self._complete_abstention(turn, prompt, answer)
            await self._remember(turn, answer)
            return await turn.build_reply(answer, passages)

    async def _load_history(self, turn: "_Turn") -> tuple[Message, ...]:
        """The last messages of the session, or else of the query, after the first message of the conversation.

        Clients send them without their intents: an answer that asked back is recognized by its text.
        """
        limit = self.limits.history_messages
        if turn.query.session_id:
            return tuple(await attempt("history", self.conversations.history(turn.query, limit), otherwise=[]))
        skip_stage("history", "no session")
        history = turn.query.history
        if self.clarifier:
            history = mark_clarification(history, self.clarifier.question)
        return history if len(history) <= limit + 1 else (history[0], *history[len(history) - limit :])

    async def _understand(self, turn: "_Turn", history: tuple[Message, ...]) -> Understanding:
        """What the question means after this history; without an understander, or if it fails, the question alone."""
        alone = Understanding(standalone=turn.query.text, intent=self.small_talk.intents.classify(turn.query.text))
        if not history:
            skip_stage(UNDERSTAND_STAGE, "no history")
            return alone
        work = self.understander.understand(turn.query, history)
        understanding = await attempt(UNDERSTAND_STAGE, work, otherwise=alone)
        if understanding.method != "none":
            await turn.emit(Understood(understanding))
        return understanding

    async def _shorten_history(self, history: tuple[Message, ...]) -> tuple[Message, ...]:
        """The last messages that fit the limits of the prompt."""
        recent = history[max(0, len(history) - self.limits.history_messages) :]
        if not recent:
            return ()
        # In a thread, because counting tokens would block the event loop.
        return await to_thread.run_sync(recent_messages, recent, self.limits.history_tokens, self.lengths)

    async def _retrieve(self, turn: "_Turn", query: Query) -> tuple[Hit, ...]:
        async with turn.run_stage("retrieve") as running:
            hits = await self.retriever.retrieve(query, self.limits.depth)
            running.ranking = tuple(hit.chunk.id for hit in hits)
            skip_stages(self.disabled)
        return tuple(hits)

    async def _clarify(
        self, turn: "_Turn", query: Query, history: Sequence[Message], hits: Sequence[Hit]
    ) -> Clarification | None:
        """What to ask back, by the understander or by the hits; never twice in a row."""
        if self.clarifier is None or was_asked_back(history, self.clarifier.question):
            return None
        clarification = turn.understanding.clarification
        if clarification is None:
            async with turn.run_stage("clarify"):
                # In a thread, because reading the texts of the hits would block the event loop.
                clarification = await to_thread.run_sync(self.clarifier.clarify, query, history, hits)
        if clarification is None:
            return None
        question, *options = (
            sanitize_title(text, self.hosts) for text in (clarification.question, *clarification.options)
        )
        return Clarification(question=question or self.clarifier.question, options=tuple(filter(None, options)))

    async def _finish_without_sources(self, turn: "_Turn", answer: Answer) -> Reply:
        """Emits, remembers and returns an answer that was not written from passages."""
        ended = {report.stage for report in turn.stages}
        left = [name for name in ("retrieve", "select", "generate", "judge") if name not in ended]
        skip_stages(dict.fromkeys(left, f"the reply is {answer.finish}"))
        await turn.emit(Sources(()))
        await turn.emit(TextDelta(answer.text))
        await self._remember(turn, answer)
        return await turn.build_reply(answer, ())

    async def _select(self, turn: "_Turn", hits: Sequence[Hit]) -> tuple[Passage, ...]:
        """Packs the hits into passages, as the stage `select`."""
        async with turn.run_stage("select") as running:
            # In a thread, because counting tokens would block the event loop.
            passages = await to_thread.run_sync(self.pack, hits)
            running.ranking = tuple(chunk.id for passage in passages for chunk in passage.chunks)
        record_documents(passage.hit.chunk.document_id for passage in passages)
        await turn.emit(Sources(passages))
        return passages

    async def _write(self, turn: "_Turn", prompt: Prompt, history: Sequence[Message]) -> Answer:
        """Writes and judges an answer, which does not only repeat those of the history.

        The guard calls `_generate`, a second time if it regenerates, and can hold back what it emits.
        """

        async def write(prompt: Prompt, emit: Listener) -> Answer:
            return await self.guard.answer(prompt, partial(self._generate, turn), emit)

        if self.repetition is None:
            return await write(prompt, turn.emit)
        return await self.repetition.answer(turn.query.text, prompt, history, write, turn.emit)

    async def _generate(self, turn: "_Turn", prompt: Prompt, emit: Listener) -> Answer:
        """Generates and cites an answer; without passages it is an abstention without text.

        `emit` is the guard's, which can hold the text back; the stage's events go to `turn.emit` at once. Text that a
        generator wrote before it failed is kept, as an answer that is `cut` or `broken`. Raises the generator's error
        if there is no text yet.
        """
        if not prompt.passages:
            skip_stage("generate", "no passages")
            return Answer(text="", finish="abstained")
        citer = Citer(prompt.passages, prompt.query.collection, prompt.style.citations, self.hosts)
        reason: Finish = "stop"
        stages_before = len(turn.stages)
        try:
            async with turn.run_stage("generate"), aclosing(self._stream(prompt)) as pieces:
                async for piece in pieces:
                    await _emit_all(citer.feed(piece), emit)
        except (GenerationError, StageTimeoutError) as error:
            reason = "cut" if isinstance(error, TruncatedError | StageTimeoutError) else "broken"
            await _emit_all(citer.finish(), emit)
            if not citer.answer.text.strip():
                raise
        else:
            await _emit_all(citer.finish(), emit)
        reports = turn.stages[stages_before:]
        await _emit_usage(reports, emit)
        figures = ChainMap(*(dict(report.figures) for report in reversed(reports)))
        if not citer.answer.text:  # generators abstain by writing nothing
            reason = "abstained"
        elif figures.get("quotes") and reason == "stop":
            reason = "passages"
        estimate = estimate_retrieval_confidence(prompt.hits) if self.knows_cosines else None
        return replace(citer.answer, finish=reason, confidence=figures.get("confidence", estimate))

    async def _stream(self, prompt: Prompt) -> AsyncGenerator[str, None]:
        """Yields the generator's pieces. Its errors that are not RagErrors become GenerationErrors."""
        with translate_foreign_errors(GenerationError):
            async with aclosing(self.generator.stream(prompt)) as pieces:
                async for piece in pieces:
                    yield piece

    async def _complete_abstention(self, turn: "_Turn", prompt: Prompt, answer: Answer) -> Answer:
        """Gives an abstention its text, which names the closest documents."""
        if answer.finish != "abstained":
            return answer
        text = _abstention_text(prompt, self.hosts)
        await turn.emit(TextDelta(text))
        return replace(answer, text=text)

    async def _remember(self, turn: "_Turn", answer: Answer) -> None:
        if turn.query.session_id:
            remembered = Turn(query=turn.query, understanding=turn.understanding, answer=answer)
            leave_seconds(REMEMBER_SECONDS)
            await attempt("remember", self.conversations.remember(remembered), otherwise=None)
        else:
            skip_stage("remember", "no session")


@dataclass(slots=True, kw_only=True)
class _Turn:
    """One question being answered.

    `stages` grows whenever a stage ends; the first `n_emitted` reports have been emitted. `started` is a time of
    `time.perf_counter`.
    """

    query: Query
    emit: Listener
    stages: list[StageReport]
    started: float
    understanding: Understanding
    n_emitted: int = 0

    @asynccontextmanager
    async def run_stage(self, name: str) -> AsyncIterator[Stage]:
        """Runs the block as a stage and emits its start and its end.

        If the block raises, the next call of `emit_stages` emits the end. Stages that other code opens are emitted
        without a start, by the next call of `emit_stages`.
        """
        await self.emit_stages()
        await self.emit(StageStarted(name))
        async with stage(name) as running:
            yield running
        await self.emit_stages()

    async def emit_stages(self) -> None:
        """Emits the stages that have ended since the last call, each with Degraded if it failed."""
        ended, self.n_emitted = self.stages[self.n_emitted :], len(self.stages)
        for report in ended:
            await self.emit(StageFinished(report))
            if report.error:
                await self.emit(Degraded(report.stage, report.error))

    async def build_reply(self, answer: Answer, passages: tuple[Passage, ...]) -> Reply:
        """Emits the remaining stages and RunFinished, and returns the reply."""
        await self.emit_stages()
        seconds = time.perf_counter() - self.started
        await self.emit(RunFinished(answer.finish, answer.confidence, answer.coverage, seconds))
        return Reply(
            query=self.query,
            standalone=self.understanding.standalone,
            answer=answer,
            understanding=self.understanding if self.understanding.method != "none" else None,
            passages=passages,
            stages=tuple(self.stages),
            seconds=seconds,
        )


@asynccontextmanager
async def _open_turn(query: Query, emit: Listener, limits: AnswerLimits) -> AsyncIterator[_Turn]:
    """Records the turn. Emits RunStarted, and RunFailed if the block raises, except after a cancellation."""
    record_question(query.text)
    with recording(min(limits.timeout, query.timeout), limits.stage_timeouts) as stages:
        turn = _Turn(
            query=query,
            emit=emit,
            stages=stages,
            started=time.perf_counter(),
            understanding=Understanding(standalone=query.text),
        )
        await emit(RunStarted(query))
        try:
            yield turn
        except Exception as error:
            await turn.emit_stages()
            await emit(RunFailed(str(error) if isinstance(error, RagError) else "internal error"))
            raise


async def _emit_all(events: Sequence[Event], emit: Listener) -> None:
    for event in events:
        await emit(event)


async def _emit_usage(reports: Sequence[StageReport], emit: Listener) -> None:
    """Emits the token counts of these stages, added up, if there are any.

    The generator adds the counts to the innermost stage. That is `generate`, or the stage `model` of
    `generation.fallback` until the first piece.
    """
    figures = [report.figures for report in reports if "prompt_tokens" in report.figures]
    if figures:
        names = ("prompt_tokens", "completion_tokens", "cached_tokens")
        await emit(Usage(*(sum(int(counts.get(name, 0)) for counts in figures) for name in names)))


def _abstention_text(prompt: Prompt, hosts: frozenset[str]) -> str:
    """The abstention, with the titles of the closest documents.

    They are filtered as an answer's text is, because documents choose their titles.
    """
    titles = list(dict.fromkeys(hit.origin.title or hit.origin.uri for hit in prompt.hits))[:MAX_CLOSEST_DOCUMENTS]
    closest = ", ".join(filter(None, (sanitize_title(title, hosts) for title in titles)))
    return f"{ABSTENTION} Closest to the question: {closest}." if closest else ABSTENTION
