import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace

import pytest
from clock import run_on_clock
from fakes.answering import ScriptedGenerator, ScriptedJudge, ScriptedRetriever, passage, passages_from_hits

from rag_core.answering.generation.confidence import PASSAGES
from rag_core.answering.generation.fallback import Fallback
from rag_core.answering.generation.small_talk import SmallTalk
from rag_core.answering.judging.guard import BLOCKED_ANSWER, UNCHECKED_ANSWER, Guard
from rag_core.answering.judging.lexical import LexicalJudge
from rag_core.answering.judging.verbatim import VerbatimJudge
from rag_core.answering.judging.verdicts import UNSUPPORTED_CONFIDENCE, Thresholds
from rag_core.answering.pipeline import ABSTENTION, AnswerLimits, QueryPipeline
from rag_core.conversation.in_memory import InMemoryConversations
from rag_core.errors import GenerationError, JudgeError, ModelError, RetrievalError, StageTimeoutError
from rag_core.events import (
    Degraded,
    Event,
    RunFailed,
    RunFinished,
    RunStarted,
    Sources,
    TextDelta,
    TextRetracted,
    Usage,
    fold,
)
from rag_core.models.chat import Completion
from rag_core.protocols import Judge
from rag_core.retrieval.query.rules import RuleUnderstander
from rag_core.retrieval.reranked import Reranked
from rag_core.stage import record_figures
from rag_core.types import Message, Prompt, Query, Reply, Style, Turn

KEYS = "Signing keys are replaced every 45 days. The harbour master keeps a copy."
LOCKS = "The lock opens at high water."
HITS = [passage(1, KEYS, start=10, title="Keys").hit, passage(2, LOCKS, title="Locks").hit]
QUERY = Query(text="How often are keys replaced?")
ANSWER = ["Signing keys are replaced ", "every 45 days [1", "]. The lock opens at high water [2]."]
TEXT = "".join(ANSWER)


LEXICAL = LexicalJudge(Thresholds(supported=0.6, partial=0.45), None)


def guard(judge: Judge | None = None, **overrides: object) -> Guard:
    settings = {"mode": "flag", "stream": "after", "on_judge_error": "allow_flagged", "timeout": 5.0, **overrides}
    return Guard(judge=judge or ScriptedJudge(), **settings)  # type: ignore[arg-type]


def pipeline(
    generator: ScriptedGenerator | None = None, answer_guard: Guard | None = None, **parts: object
) -> QueryPipeline:
    components = {"retriever": ScriptedRetriever(hits=HITS), "limits": AnswerLimits(), **parts}
    components = {"conversations": InMemoryConversations(), **components}
    return QueryPipeline(
        pack=passages_from_hits,
        generator=generator or ScriptedGenerator(answers=[ANSWER]),
        guard=answer_guard or guard(),
        understander=RuleUnderstander(),
        style=Style(),
        **components,  # type: ignore[arg-type]
    )


def ask(answering: QueryPipeline, query: Query = QUERY) -> tuple[Reply, list[Event]]:
    return run_on_clock(_ask_with_events(answering, query, []))


async def _ask_with_events(answering: QueryPipeline, query: Query, events: list[Event]) -> tuple[Reply, list[Event]]:
    async def hear(event: Event) -> None:
        events.append(event)

    return await answering.answer(query, hear), events


def stages(reply: Reply) -> list[str]:
    return [report.stage for report in reply.stages if not report.parent]


def text(events: Sequence[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def test_a_reply_has_the_text_that_was_streamed_and_a_citation_for_each_marker() -> None:
    reply, events = ask(pipeline())
    assert reply.answer.text == text(events) == TEXT
    assert [(citation.n, citation.quote, citation.start) for citation in reply.answer.citations] == [
        (1, "Signing keys are replaced every 45 days.", 10),
        (2, LOCKS, 0),
    ]
    assert (reply.answer.confidence, reply.answer.coverage) == (None, 1.0)
    assert reply.answer.verdict.grade == "supported"


def test_the_reply_is_the_fold_of_its_events() -> None:
    reply, events = ask(pipeline(answer_guard=guard(ScriptedJudge(words={"lock": "unsupported"}))))
    assert fold(events) == reply
    assert [citation.grade for citation in reply.answer.citations] == ["supported", "unsupported"]


def test_sources_are_emitted_before_the_first_word_and_the_end_last() -> None:
    _, events = ask(pipeline())
    kinds = [type(event) for event in events]
    assert kinds[0] is RunStarted
    assert kinds[-1] is RunFinished
    assert kinds.index(Sources) < kinds.index(TextDelta)


def test_the_stages_of_a_turn_are_named_and_those_left_out_say_why() -> None:
    reply, _ = ask(pipeline(answer_guard=guard(mode="off")))
    assert stages(reply) == ["history", "understand", "retrieve", "select", "judge", "generate", "remember"]
    skipped = {report.stage: report.skipped for report in reply.stages if report.skipped}
    assert skipped == {
        "history": "no session",
        "understand": "no history",
        "judge": "guard.mode is off",
        "remember": "no session",
    }


def test_the_times_of_the_top_level_stages_add_up_to_the_whole() -> None:
    slow = ScriptedGenerator(answers=[ANSWER], seconds=0.05)
    reply, _ = ask(pipeline(slow, retriever=ScriptedRetriever(hits=HITS, seconds=0.05)))
    spent = sum(report.seconds for report in reply.stages if not report.parent)
    assert spent == pytest.approx(reply.seconds, rel=0.05)


def test_nothing_found_is_an_abstention_and_no_generator_is_asked() -> None:
    generator = ScriptedGenerator(answers=[ANSWER])
    reply, events = ask(pipeline(generator, retriever=ScriptedRetriever(hits=[])))
    assert (reply.answer.text, reply.answer.finish) == (ABSTENTION, "abstained")
    assert not generator.prompts
    assert fold(events) == reply


def test_a_generator_that_says_nothing_abstains_and_names_what_was_looked_at() -> None:
    judge = ScriptedJudge()
    reply, events = ask(pipeline(ScriptedGenerator(answers=[[]]), guard(judge)))
    assert reply.answer.text == f"{ABSTENTION} Closest to the question: Keys, Locks."
    assert (reply.answer.finish, reply.answer.citations, reply.answer.coverage) == ("abstained", (), 0.0)
    assert not judge.judged
    assert fold(events) == reply


def test_text_written_before_a_generator_broke_off_is_kept() -> None:
    broken = ScriptedGenerator(answers=[ANSWER[:2]], error=GenerationError("the endpoint hung up"))
    reply, events = ask(pipeline(broken))
    assert reply.answer.finish == "broken"
    assert reply.answer.text == "Signing keys are replaced every 45 days"
    assert reply.degraded == ("generate",)
    assert Degraded("generate", "the endpoint hung up") in events
    assert fold(events) == reply


def test_a_generator_that_breaks_before_its_first_word_is_a_named_error() -> None:
    broken = ScriptedGenerator(answers=[[]], error=GenerationError("the endpoint is away"))
    events: list[Event] = []
    with pytest.raises(GenerationError, match="the endpoint is away"):
        run_on_clock(_ask_with_events(pipeline(broken), QUERY, events))
    assert events[-1] == RunFailed("the endpoint is away")


def test_an_error_of_a_users_own_generator_gets_a_name() -> None:
    events: list[Event] = []
    failing = pipeline(ScriptedGenerator(answers=[[]], error=ConnectionError("own model away")))
    with pytest.raises(GenerationError, match="ConnectionError: own model away"):
        run_on_clock(_ask_with_events(failing, QUERY, events))
    assert events[-1] == RunFailed("ConnectionError: own model away")


def test_text_that_a_users_own_generator_wrote_before_its_error_is_kept() -> None:
    reply, _ = ask(pipeline(ScriptedGenerator(answers=[ANSWER], error=ConnectionError("own model away"))))
    assert (reply.answer.text, reply.answer.finish) == (TEXT, "broken")


def test_a_failing_listener_is_not_a_failing_generator() -> None:
    async def hear(event: Event) -> None:
        if isinstance(event, TextDelta):
            raise ConnectionError("gone")

    with pytest.raises(ConnectionError):
        run_on_clock(pipeline().answer(QUERY, hear))


@dataclass
class Counting:
    """A generator that counts the tokens of its prompt, and then writes this."""

    pieces: Sequence[str]

    async def stream(self, prompt: Prompt) -> AsyncGenerator[str, None]:  # noqa: ARG002
        for piece in self.pieces:
            yield piece
        record_figures(prompt_tokens=100, completion_tokens=5, cached_tokens=64)


@pytest.mark.parametrize("pieces", [[], ANSWER])
def test_usage_is_emitted_once_whether_a_model_before_a_fallback_answers_or_abstains(pieces: list[str]) -> None:
    _, events = ask(pipeline(Fallback(Counting(pieces), ScriptedGenerator(answers=[]))))
    assert [event for event in events if isinstance(event, Usage)] == [Usage(100, 5, 64)]


@pytest.mark.parametrize(("timeout", "model_time"), [(60.0, 55.0), (2.0, 1.5)])
def test_a_model_that_hangs_leaves_the_fallback_time_to_answer(timeout: float, model_time: float) -> None:
    hanging = ScriptedGenerator(answers=[["late"]], seconds=1_000.0)
    quoting = ScriptedGenerator(answers=[ANSWER], seconds=0.1)
    reply, events = ask(pipeline(Fallback(hanging, quoting), limits=AnswerLimits(timeout=timeout)))  # type: ignore[arg-type]
    assert reply.answer.text == "".join(ANSWER)
    assert reply.answer.finish == "stop"
    (model,) = [report for report in reply.stages if report.stage == "model"]
    assert model.error == f"timeout after {model_time:.3f} s"
    assert Degraded("model", model.error) in events


def test_a_reranker_that_is_late_leaves_the_hits_as_they_were_found() -> None:
    slow = Reranked(retriever=ScriptedRetriever(hits=HITS), reranker=Endless(), depth=2)
    reply, _ = ask(pipeline(retriever=slow, limits=AnswerLimits(stage_timeouts={"retrieve": 0.2, "rerank": 1.4})))
    assert (reply.answer.text, reply.degraded) == (TEXT, ("rerank",))


class Endless:
    """A reranker that never ends."""

    async def score(self, question: str, texts: Sequence[str]) -> list[float]:  # noqa: ARG002
        await asyncio.sleep(60)
        return [0.0] * len(texts)


def test_the_last_messages_of_a_history_that_fit_are_read() -> None:
    generator = ScriptedGenerator(answers=[ANSWER])
    history = tuple(Message(role="user", text=text) for text in ("first " * 50, "second " * 5, "third " * 5))
    ask(pipeline(generator, limits=AnswerLimits(history_tokens=40)), replace(QUERY, history=history))
    assert generator.prompts[0].history == history[1:]


def test_a_history_has_at_most_3000_tokens_by_default() -> None:
    generator = ScriptedGenerator(answers=[ANSWER])
    history = tuple(Message(role="user", text="x" * 4000) for _ in range(10))
    ask(pipeline(generator), replace(QUERY, history=history))
    assert len(generator.prompts[0].history) == 2


def test_a_search_that_fails_is_a_named_error_and_emitted() -> None:
    events: list[Event] = []
    failing = pipeline(retriever=ScriptedRetriever(hits=[], error=RetrievalError("no leg answered")))
    with pytest.raises(RetrievalError):
        run_on_clock(_ask_with_events(failing, QUERY, events))
    assert events[-1] == RunFailed("no leg answered")


def test_one_deadline_ends_the_work_below_and_keeps_what_was_written() -> None:
    endless = ScriptedGenerator(answers=[["Keys are replaced. "] * 1000], seconds=0.01)
    reply, _ = ask(pipeline(endless, limits=AnswerLimits(timeout=0.2)))
    assert reply.answer.finish == "cut"
    assert reply.seconds < 1
    assert endless.closed == 1
    assert "generate" in reply.degraded


def test_a_search_has_no_more_than_its_budget() -> None:
    slow = ScriptedRetriever(hits=HITS, seconds=60)
    with pytest.raises(StageTimeoutError, match="retrieve"):
        ask(pipeline(retriever=slow, limits=AnswerLimits(stage_timeouts={"retrieve": 0.05})))


def test_a_caller_that_goes_away_ends_the_generator() -> None:
    endless = ScriptedGenerator(answers=[["word "] * 1000], seconds=0.01)

    async def leave() -> None:
        task = asyncio.create_task(pipeline(endless).answer(QUERY))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_on_clock(leave())
    assert (len(endless.prompts), endless.closed) == (1, 1)


def test_a_session_is_remembered_and_its_history_is_in_the_next_prompt() -> None:
    generator = ScriptedGenerator(answers=[ANSWER, ANSWER])
    answering, query = pipeline(generator), replace(QUERY, session_id="s")

    async def twice() -> None:
        await answering.answer(query)
        await answering.answer(replace(query, text="And the locks?"))
        await answering.answer(replace(query, tenant="another-tenant"))

    with pytest.raises(GenerationError, match="IndexError"):  # the script has two answers
        run_on_clock(twice())
    messages = [("user", QUERY.text), ("assistant", TEXT)]
    histories = [[(message.role, message.text) for message in prompt.history] for prompt in generator.prompts]
    assert histories == [[], messages, []]


def test_an_answer_that_the_deadline_cuts_short_is_remembered() -> None:
    class SlowConversations(InMemoryConversations):
        async def remember(self, turn: Turn) -> None:
            await asyncio.sleep(0.1)
            await super().remember(turn)

    conversations, query = SlowConversations(), replace(QUERY, session_id="s")
    endless = ScriptedGenerator(answers=[["Keys are replaced. "] * 100], seconds=0.05)
    limits = AnswerLimits(timeout=0.2)
    reply, _ = ask(pipeline(endless, conversations=conversations, limits=limits), query)
    assert (reply.answer.finish, "remember" in reply.degraded) == ("cut", False)
    assert len(run_on_clock(conversations.history(query, 10))) == 2


def test_a_blocked_answer_is_retracted_and_replaced() -> None:
    lying = ScriptedJudge(words={"45": "unsupported"})
    reply, events = ask(pipeline(answer_guard=guard(lying, mode="block")))
    assert TextRetracted("not supported by the sources") in events
    assert (reply.answer.text, reply.answer.finish, reply.answer.citations) == (BLOCKED_ANSWER, "blocked", ())
    assert reply.answer.verdict.grade == "partial"
    assert fold(events) == reply


def test_with_a_buffer_nothing_of_a_blocked_answer_is_emitted() -> None:
    lying = ScriptedJudge(words={"45": "unsupported"})
    reply, events = ask(pipeline(answer_guard=guard(lying, mode="block", stream="buffer")))
    assert text(events) == BLOCKED_ANSWER
    assert not [event for event in events if isinstance(event, TextRetracted)]
    assert fold(events) == reply


@pytest.mark.parametrize("stream", ["after", "buffer"])
def test_regenerating_names_what_was_unsupported_once(stream: str) -> None:
    generator = ScriptedGenerator(answers=[ANSWER, ["The lock opens at high water [2]."]])
    lying = ScriptedJudge(words={"45": "unsupported"})
    reply, events = ask(pipeline(generator, guard(lying, mode="regenerate", stream=stream)))
    assert [prompt.unsupported for prompt in generator.prompts] == [
        (),
        ("Signing keys are replaced every 45 days",),
    ]
    assert reply.answer.text == "The lock opens at high water [2]."
    assert fold(events) == reply


def test_a_regenerated_answer_that_is_unsupported_is_blocked() -> None:
    generator = ScriptedGenerator(answers=[ANSWER, ANSWER])
    lying = ScriptedJudge(words={"45": "unsupported"})
    reply, events = ask(pipeline(generator, guard(lying, mode="regenerate")))
    assert (len(generator.prompts), reply.answer.text) == (2, BLOCKED_ANSWER)
    assert fold(events) == reply


def test_by_sentence_no_unsupported_one_is_emitted_and_the_others_keep_their_citations() -> None:
    lying = ScriptedJudge(words={"45": "unsupported"})
    reply, events = ask(pipeline(answer_guard=guard(lying, mode="block", stream="sentence")))
    assert text(events) == reply.answer.text == "The lock opens at high water [2]."
    (citation,) = reply.answer.citations
    assert reply.answer.text[slice(*citation.spans[0])] == "[2]"
    assert citation.quote == LOCKS
    assert fold(events) == reply


def test_by_sentence_each_is_judged_once_and_flagged_ones_pass() -> None:
    judge = ScriptedJudge(words={"45": "unsupported"})
    reply, events = ask(pipeline(answer_guard=guard(judge, stream="sentence")))
    assert judge.judged == ["Signing keys are replaced every 45 days [1]. ", "The lock opens at high water [2]."]
    assert reply.answer.text == TEXT
    assert [citation.grade for citation in reply.answer.citations] == ["unsupported", "supported"]
    assert fold(events) == reply


def test_by_sentence_an_answer_of_which_nothing_passes_is_blocked() -> None:
    judge = ScriptedJudge(words={"": "unsupported"})
    reply, events = ask(pipeline(answer_guard=guard(judge, mode="block", stream="sentence")))
    assert (reply.answer.text, reply.answer.finish) == (BLOCKED_ANSWER, "blocked")
    assert fold(events) == reply


UNJUDGED = ["# Keys are of gold", "```\nKeys are of gold\n```"]
"""What states nothing."""


@pytest.mark.parametrize("written", UNJUDGED)
@pytest.mark.parametrize("stream", ["after", "sentence", "buffer"])
def test_an_answer_in_which_nothing_can_be_judged_is_blocked(written: str, stream: str) -> None:
    reply, events = ask(pipeline(ScriptedGenerator(answers=[[written]]), guard(LEXICAL, mode="block", stream=stream)))
    assert (reply.answer.text, reply.answer.finish) == (BLOCKED_ANSWER, "blocked")
    assert fold(events) == reply


@pytest.mark.parametrize("written", UNJUDGED)
def test_an_answer_in_which_nothing_can_be_judged_is_written_again_and_then_blocked(written: str) -> None:
    generator = ScriptedGenerator(answers=[[written], [written]])
    reply, _ = ask(pipeline(generator, guard(LEXICAL, mode="regenerate")))
    assert [prompt.unsupported for prompt in generator.prompts] == [(), (written,)]
    assert reply.answer.text == BLOCKED_ANSWER


@pytest.mark.parametrize("mode", ["flag", "block"])
def test_a_heading_above_what_is_supported_passes(mode: str) -> None:
    text = f"# Keys\n\n{KEYS} [1]"
    reply, _ = ask(pipeline(ScriptedGenerator(answers=[[text]]), guard(LEXICAL, mode=mode)))
    assert reply.answer.text == text


def test_a_guard_that_only_flags_passes_an_answer_that_states_nothing_unchecked() -> None:
    reply, _ = ask(pipeline(ScriptedGenerator(answers=[["# Keys"]]), guard(LEXICAL)))
    assert (reply.answer.text, reply.answer.verdict.grade) == ("# Keys", "unchecked")


@pytest.mark.parametrize("mode", ["block", "regenerate"])
@pytest.mark.parametrize("stream", ["after", "sentence", "buffer"])
def test_an_answer_in_another_language_than_its_passages_is_not_held_back(mode: str, stream: str) -> None:
    text = "Die Schlüssel für die Unterschriften werden regelmäßig ausgetauscht [1]."
    generator = ScriptedGenerator(answers=[[text]])
    reply, events = ask(pipeline(generator, guard(LEXICAL, mode=mode, stream=stream)))
    assert (reply.answer.text, reply.answer.finish) == (text, "stop")
    assert (reply.answer.verdict.grade, len(reply.answer.verdict.claims)) == ("unchecked", 1)
    assert fold(events) == reply


@pytest.mark.parametrize("failure", [JudgeError("away"), ModelError("no weights"), ValueError("of somebody's own")])
def test_a_judge_that_fails_leaves_the_answer_unchecked_and_reports_it(failure: Exception) -> None:
    reply, events = ask(pipeline(answer_guard=guard(ScriptedJudge(error=failure), mode="block")))
    assert (reply.answer.text, reply.answer.verdict.grade, reply.degraded) == (TEXT, "unchecked", ("judge",))
    assert fold(events) == reply


def test_a_judge_that_is_late_can_block() -> None:
    late = guard(ScriptedJudge(seconds=60), mode="block", on_judge_error="block", timeout=0.05)
    reply, _ = ask(pipeline(answer_guard=late))
    assert (reply.answer.text, reply.degraded) == (UNCHECKED_ANSWER, ("judge",))
    assert reply.degraded_reasons == {"judge": "timeout after 0.050 s"}


def test_by_sentence_a_judge_that_fails_can_block() -> None:
    broken = guard(ScriptedJudge(error=JudgeError("away")), mode="block", on_judge_error="block", stream="sentence")
    reply, events = ask(pipeline(answer_guard=broken))
    assert (reply.answer.text, reply.answer.finish) == (UNCHECKED_ANSWER, "blocked")
    assert fold(events) == reply


@pytest.mark.parametrize("stream", ["after", "sentence", "buffer"])
def test_an_abstention_is_emitted_whatever_the_guard_is(stream: str) -> None:
    strict = ScriptedJudge(words={"": "unsupported"})
    reply, events = ask(pipeline(ScriptedGenerator(answers=[[]]), guard(strict, mode="block", stream=stream)))
    assert (reply.answer.text, reply.answer.finish) == (
        f"{ABSTENTION} Closest to the question: Keys, Locks.",
        "abstained",
    )
    assert not strict.judged
    assert fold(events) == reply


def test_titles_in_an_abstention_are_filtered_like_an_answer() -> None:
    title = "![x](https://evil.example/a.png?leak) [1] <img src=//evil.example/b> Keys"
    hostile = ScriptedRetriever(hits=[passage(1, KEYS, title=title).hit])
    reply, _ = ask(pipeline(ScriptedGenerator(answers=[[]]), retriever=hostile))
    assert "evil" not in reply.answer.text
    assert "[1]" not in reply.answer.text
    assert reply.answer.text.endswith("Keys.")


def test_a_deadline_within_the_judging_of_a_sentence_loses_nothing() -> None:
    slow = guard(ScriptedJudge(seconds=60), mode="block", stream="sentence", timeout=60.0)
    reply, events = ask(pipeline(answer_guard=slow, limits=AnswerLimits(timeout=0.2)))
    assert reply.answer.finish == "cut"
    assert reply.answer.text == TEXT[: len(reply.answer.text)]
    assert reply.answer.text.startswith("Signing keys are replaced every 45 days [1].")
    assert fold(events) == reply


def test_by_sentence_a_judge_that_fails_is_not_asked_again() -> None:
    broken = ScriptedJudge(error=JudgeError("away"))
    reply, _ = ask(pipeline(answer_guard=guard(broken, stream="sentence")))
    assert (len(broken.judged), reply.answer.text) == (1, TEXT)


def test_by_sentence_the_coverage_is_that_of_what_passed() -> None:
    written = ScriptedGenerator(answers=[["The lock opens at high water [2]. Elephants dance."]])
    reply, _ = ask(
        pipeline(written, guard(ScriptedJudge(words={"dance": "unsupported"}), mode="block", stream="sentence"))
    )
    assert (reply.answer.text, reply.answer.coverage) == ("The lock opens at high water [2]. ", 1.0)


def test_code_is_not_cut_by_sentences() -> None:
    code = "`Elephants dance. ![i](//evil.example/a.png) x` is code [1]. The lock opens [2]."
    strict = guard(ScriptedJudge(words={"dance": "unsupported"}), mode="block", stream="sentence")
    reply, _ = ask(pipeline(ScriptedGenerator(answers=[[code]]), strict))
    assert reply.answer.text == "The lock opens [2]."


def test_a_second_try_that_fails_is_blocked_and_not_an_error() -> None:
    generator = ScriptedGenerator(answers=[ANSWER, []], error=GenerationError("hung up"), successful_calls=1)
    lying = ScriptedJudge(words={"45": "unsupported"})
    reply, events = ask(pipeline(generator, guard(lying, mode="regenerate")))
    assert (reply.answer.text, reply.answer.finish) == (BLOCKED_ANSWER, "blocked")
    assert fold(events) == reply


def test_a_missing_judge_is_not_a_reason_to_write_again() -> None:
    generator = ScriptedGenerator(answers=[ANSWER])
    failing_guard = guard(ScriptedJudge(error=JudgeError("away")), mode="regenerate", on_judge_error="block")
    reply, _ = ask(pipeline(generator, failing_guard))
    assert (len(generator.prompts), reply.answer.text) == (1, UNCHECKED_ANSWER)


def test_an_unexpected_error_is_reported_without_its_text() -> None:
    events: list[Event] = []
    with pytest.raises(ZeroDivisionError):
        run_on_clock(
            _ask_with_events(
                pipeline(retriever=ScriptedRetriever(hits=[], error=ZeroDivisionError("secret"))), QUERY, events
            )
        )
    assert events[-1] == RunFailed("internal error")


NOTICE = "The closest passages:"
QUOTES = [NOTICE, "\n\n“Signing keys are replaced every 45 days.” [1]"]


@dataclass(kw_only=True)
class EstimatingGenerator(ScriptedGenerator):
    """Reports these figures before it writes."""

    figures: dict[str, float]

    async def stream(self, prompt: Prompt) -> AsyncGenerator[str, None]:
        record_figures(**self.figures)
        async for piece in ScriptedGenerator.stream(self, prompt):
            yield piece


@pytest.mark.parametrize("mode", ["flag", "block", "regenerate"])
@pytest.mark.parametrize("stream", ["after", "sentence", "buffer"])
def test_passages_are_cited_quotes_that_nobody_blocks_and_nobody_calls_supported(mode: str, stream: str) -> None:
    generator = EstimatingGenerator(answers=[QUOTES], figures={"confidence": 0.3, "quotes": 1})
    strict = guard(VerbatimJudge(), mode=mode, stream=stream, confident=0.5, notice=NOTICE, on_judge_error="block")
    reply, events = ask(pipeline(generator, strict))
    assert (reply.answer.text, reply.answer.finish) == ("".join(QUOTES), "passages")
    assert [citation.quote for citation in reply.answer.citations] == ["Signing keys are replaced every 45 days."]
    assert (reply.answer.confidence, reply.answer.coverage, reply.answer.verdict.grade) == (0.3, 0.5, "partial")
    assert fold(events) == reply


def test_an_answer_is_no_surer_than_its_verdict_and_no_better_supported_than_sure() -> None:
    sure = EstimatingGenerator(answers=[ANSWER], figures={"confidence": 0.9})
    reply, _ = ask(pipeline(sure, guard(ScriptedJudge(words={"every": "unsupported", "lock": "unsupported"}))))
    assert (reply.answer.confidence, reply.answer.verdict.grade) == (UNSUPPORTED_CONFIDENCE, "unsupported")
    unsure = EstimatingGenerator(answers=[ANSWER], figures={"confidence": 0.4})
    reply, _ = ask(pipeline(unsure, guard(confident=0.5)))
    assert (reply.answer.confidence, reply.answer.verdict.grade, reply.answer.finish) == (0.4, "partial", "stop")


def test_a_generator_that_reports_no_confidence_has_that_of_its_hits_if_their_encoder_was_calibrated() -> None:
    hits = [replace(hit, scores={"dense": 0.7, "bm25": 4.0}) for hit in HITS]
    reply, _ = ask(pipeline(retriever=ScriptedRetriever(hits=hits), knows_cosines=True))
    assert reply.answer.confidence == PASSAGES.probability(0.7, 0.0)
    reply, _ = ask(pipeline(retriever=ScriptedRetriever(hits=hits)))
    assert reply.answer.confidence is None


def test_thanks_are_answered_without_a_search_and_remembered() -> None:
    generator, answering = ScriptedGenerator(answers=[ANSWER]), InMemoryConversations()
    query = Query(text="Vielen Dank!", session_id="s")
    reply, events = ask(pipeline(generator, conversations=answering), query)
    assert (reply.answer.finish, reply.passages, generator.prompts) == ("conversational", (), [])
    assert reply.answer.text == text(events) == "Gern. Fragen Sie mich, was Sie über die Dokumente wissen möchten."
    assert fold(events) == reply
    messages = asyncio.run(answering.history(query, 10))
    assert [(message.role, message.intent) for message in messages] == [
        ("user", "conversational"),
        ("assistant", "conversational"),
    ]


@dataclass
class ScriptedModel:
    text: str

    async def complete(self, *_: object, **__: object) -> Completion:
        if not self.text:
            raise GenerationError("no model")
        return Completion(text=self.text)


@pytest.mark.parametrize(
    ("written", "text"),
    [("My pleasure [1].", "My pleasure (1)."), ("", "With pleasure. Ask me anything about the documents.")],
)
def test_a_model_answers_small_talk_without_markers_and_the_pack_if_it_fails(written: str, text: str) -> None:
    small_talk = SmallTalk(client=ScriptedModel(written))
    reply, _ = ask(pipeline(small_talk=small_talk), Query(text="Thanks!"))
    assert reply.answer.text == text
    assert reply.degraded == (() if written else ("small talk",))


def test_small_talk_of_a_model_links_to_no_other_host() -> None:
    small_talk = SmallTalk(client=ScriptedModel("My pleasure. ![x](http://evil/?q=keys)"))
    reply, _ = ask(pipeline(small_talk=small_talk), Query(text="Thanks!"))
    assert reply.answer.text == "My pleasure."


def test_an_intent_has_a_prompt_of_its_own() -> None:
    generator = ScriptedGenerator(answers=[ANSWER, ANSWER])
    answering = pipeline(generator)
    ask(answering, Query(text="Whom should I call? Who is in charge of keys?"))
    ask(answering)
    assert [prompt.style.pack for prompt in generator.prompts] == ["routing", "conversational"]
