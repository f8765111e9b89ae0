import asyncio
from collections import Counter
from dataclasses import dataclass

import pytest

from rag_core.answering.split import BUCKETS, Experiment, SplitAnswerer
from rag_core.errors import GenerationError
from rag_core.events import Listener, ignore_event
from rag_core.storage.exposures import Exposure
from rag_core.types import Answer, Finish, Message, Query, Reply


@dataclass
class ScriptedAnswerer:
    text: str
    finish: Finish = "stop"
    error: Exception | None = None

    async def answer(self, query: Query, emit: Listener = ignore_event) -> Reply:  # noqa: ARG002
        if self.error:
            raise self.error
        return Reply(query=query, standalone=query.text, answer=Answer(text=self.text, finish=self.finish))


def split(
    control: ScriptedAnswerer, treatment: ScriptedAnswerer, share: float = 0.5
) -> tuple[SplitAnswerer, list[Exposure]]:
    exposures: list[Exposure] = []
    experiment = Experiment(name="reranker-1", share=share)
    return SplitAnswerer(
        experiment=experiment, control=control, treatment=treatment, record=exposures.append
    ), exposures


def ask(answerer: SplitAnswerer, query: Query) -> str:
    return asyncio.run(answerer.answer(query)).answer.text


def test_a_new_version_does_not_move_conversations() -> None:
    assert [Experiment(name="x").bucket("t", f"c{i}") for i in range(3)] == [2776, 6939, 1293]


def test_conversations_are_split_evenly_and_independently_of_other_experiments() -> None:
    one, other = Experiment(name="one"), Experiment(name="other")
    both = Counter(
        (one.variant(one.bucket("t", str(i))), other.variant(other.bucket("t", str(i)))) for i in range(20_000)
    )
    assert all(abs(count - 5000) < 4 * (20_000 * 0.25 * 0.75) ** 0.5 for count in both.values())
    assert len(both) == 4


@pytest.mark.parametrize(("share", "treated"), [(0.0, 0), (0.1, 1000), (1.0, BUCKETS)])
def test_the_share_is_that_of_the_buckets(share: float, treated: int) -> None:
    experiment = Experiment(name="x", share=share)
    assert sum(experiment.variant(bucket) == "treatment" for bucket in range(BUCKETS)) == treated


def test_a_conversation_keeps_its_variant() -> None:
    answerer, exposures = split(ScriptedAnswerer("old"), ScriptedAnswerer("new"))
    first = Query(text="When is the lock open?")
    history = (Message(role="user", text=first.text), Message(role="assistant", text="At 8."))
    later = Query(text="And on Sundays?", history=history)
    assert ask(answerer, first) == ask(answerer, later)
    assert len({exposure.conversation for exposure in exposures}) == 1
    texts = {session: ask(answerer, Query(text=str(session), session_id=str(session % 20))) for session in range(40)}
    assert all(texts[session] == texts[session + 20] for session in range(20))
    assert set(texts.values()) == {"old", "new"}


def test_every_answer_is_recorded() -> None:
    answerer, exposures = split(ScriptedAnswerer("old"), ScriptedAnswerer("", finish="abstained"), share=1.0)
    ask(answerer, Query(text="Why?"))
    (exposure,) = exposures
    assert (exposure.experiment, exposure.variant, exposure.abstained, exposure.error) == (
        "reranker-1",
        "treatment",
        True,
        "",
    )
    assert exposure.seconds > 0
    assert "Why?" not in exposure.conversation


def test_an_error_is_recorded_and_raised() -> None:
    failing = ScriptedAnswerer("", error=GenerationError("the endpoint is gone"))
    answerer, exposures = split(failing, failing)
    with pytest.raises(GenerationError, match="the endpoint is gone"):
        ask(answerer, Query(text="Why?"))
    assert [exposure.error for exposure in exposures] == ["GenerationError"]


def test_an_answer_that_broke_off_counts_as_an_error() -> None:
    broken = ScriptedAnswerer("Every 45", finish="broken")
    answerer, exposures = split(broken, broken)
    assert ask(answerer, Query(text="How often?")) == "Every 45"
    assert [exposure.error for exposure in exposures] == ["GenerationError"]
