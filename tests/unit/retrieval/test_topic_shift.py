"""Changes of the subject: how they are detected, and what they leave out."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_core.errors import ModelError
from rag_core.models.encoders.cached_embedder import CachedEmbedder
from rag_core.retrieval.query.adaptive import leave_subject, stability
from rag_core.retrieval.query.rules import RuleUnderstander, VariantWeights
from rag_core.retrieval.query.topic_shift import (
    MAX_ANSWER_CHARS,
    SHIFT_STAGE,
    Drift,
    Exchange,
    ShiftAwareUnderstander,
    TopicShiftDetector,
    WindowDriftDetector,
    list_exchanges,
    refers_back,
)
from rag_core.settings import load_settings
from rag_core.stage import recording
from rag_core.types import Matrix, Message, Query, StageReport, Understanding, Variant
from rag_core.wiring.models import RemoteModels
from rag_core.wiring.question_embedder import build_question_embedder
from rag_core.wiring.understanding import SHIFT_THRESHOLDS, build_understander

T = TypeVar("T")
HISTORY = (Message(role="user", text="keys"), Message(role="assistant", text="Keys rotate monthly."))
SHIFT = Drift(distance=0.9, is_shift=True)
RULES = RuleUnderstander(VariantWeights(carried=0))


@dataclass
class ByAngle:
    """An embedder whose rows have these angles in degrees, by text; it records the texts of each call."""

    angles: Mapping[str, float]
    calls: list[list[str]] = field(default_factory=list)

    async def embed(self, texts: Sequence[str]) -> Matrix:
        self.calls.append(list(texts))
        radians = np.radians([self.angles[text] for text in texts])
        return np.stack([np.cos(radians), np.sin(radians)], axis=1).astype(np.float32)


@dataclass
class ByTerm:
    weights: Mapping[str, float] = field(default_factory=dict)

    async def idf(self, query: Query) -> Mapping[str, float]:  # noqa: ARG002
        return self.weights


@dataclass
class ScriptedDetector:
    drift: Drift | Exception

    async def measure(self, query: Query, history: Sequence[Message]) -> Drift:  # noqa: ARG002
        if isinstance(self.drift, Exception):
            raise self.drift
        return self.drift


@dataclass
class ByIntent:
    """An understander that gives every question this intent, and the history as its resolved references."""

    intent: str

    async def understand(self, query: Query, history: Sequence[Message]) -> Understanding:
        resolved = {message.text: message.role for message in history}
        return Understanding(standalone=query.text, intent=self.intent, resolved=resolved, method="llm")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def measure(question: str, angles: Mapping[str, float], weights: Mapping[str, float] | None = None) -> Drift:
    detector = TopicShiftDetector(ByAngle(angles), ByTerm(weights or {}))
    return run(detector.measure(Query(text=question), HISTORY))


def understand(
    drift: Drift | Exception, history: Sequence[Message] = HISTORY
) -> tuple[Understanding, list[StageReport]]:
    async def work() -> tuple[Understanding, list[StageReport]]:
        with recording() as stages:
            understander = ShiftAwareUnderstander(RULES, ScriptedDetector(drift))
            understanding = await understander.understand(Query(text="which lamps?"), history)
        return understanding, [report for report in stages if report.stage == SHIFT_STAGE]

    return run(work())


def test_the_score_is_the_highest_cosine_with_a_question_or_its_answer() -> None:
    drift = measure("which lamps rotate?", {"which lamps rotate?": 0, "keys": 90, "Keys rotate monthly.": 60})
    assert drift.distance == pytest.approx(0.5)
    assert not drift.is_shift


def test_a_question_far_from_all_is_a_shift_unless_it_has_words_of_the_answer() -> None:
    angles = {"which lamps rotate?": 0, "keys": 90, "Keys rotate monthly.": 85}
    assert measure("which lamps rotate?", angles, {"lamp": 1.0, "rotat": 0.1}).is_shift
    assert not measure("which lamps rotate?", angles, {"lamp": 1.0, "rotat": 3.0}).is_shift


@pytest.mark.parametrize(
    ("question", "is_shift"),
    [
        ("who opens them?", False),
        ("who else opens?", False),
        ("and who opens?", False),
        ("why?", False),
        ("who opens?", False),
        ("who opens the doors?", True),
    ],
)
def test_a_word_that_continues_a_conversation_refers_to_the_history(question: str, is_shift: bool) -> None:
    assert refers_back(question, [Exchange("keys")]) is not is_shift
    assert measure(question, {question: 0, "keys": 90, "Keys rotate monthly.": 84}).is_shift is is_shift


def test_only_the_question_and_the_last_answer_are_encoded_in_a_turn() -> None:
    encoder = ByAngle({"keys": 0, "Keys rotate monthly.": 0, "lamps": 0, "Red.": 0, "doors": 0})
    detector = TopicShiftDetector(CachedEmbedder(encoder), ByTerm())
    run(detector.measure(Query(text="lamps"), HISTORY))
    later = (*HISTORY, Message(role="user", text="lamps"), Message(role="assistant", text="Red."))
    run(detector.measure(Query(text="doors"), later))
    assert encoder.calls == [["lamps", "keys", "Keys rotate monthly."], ["doors", "Red."]]


def test_a_long_answer_is_encoded_in_part() -> None:
    (exchange,) = list_exchanges([HISTORY[0], Message(role="assistant", text="a" * 1000)])
    assert exchange.texts == ["keys", "a" * MAX_ANSWER_CHARS]


@pytest.mark.parametrize("changes", [{"intent": "conversational"}, {"intent": "finalization"}, {"text": " "}])
def test_messages_without_a_subject_are_not_compared(changes: dict[str, str]) -> None:
    messages = [replace(message, **changes) for message in HISTORY]  # type: ignore[arg-type]
    assert list_exchanges(messages) == []
    assert run(TopicShiftDetector(ByAngle({}), ByTerm()).measure(Query(text="lamps"), messages)) == Drift()


def test_the_window_detector_compares_with_the_mean_of_the_questions() -> None:
    history = [Message(role="user", text="a"), Message(role="user", text="b")]
    detector = WindowDriftDetector(ByAngle({"lamps": 0, "a": 40, "b": 80}))
    drift = run(detector.measure(Query(text="lamps"), history))
    assert drift.distance == pytest.approx(0.5)
    assert not drift.is_shift
    assert run(replace(detector, threshold=0.51).measure(Query(text="lamps"), history)).is_shift


def weights(understanding: Understanding) -> dict[str, float]:
    return {variant.name: variant.weight for variant in understanding.variants}


def test_the_history_counts_half_if_the_question_changes_the_subject() -> None:
    understanding, stages = understand(SHIFT)
    assert weights(understanding) == {"question": 1.0, "previous": 0.25, "answer": 0.25}
    assert (understanding.drift, understanding.is_shift) == (0.9, True)
    assert [(report.stage, report.figures) for report in stages] == [("topic_shift", {"drift": 0.9, "is_shift": True})]


def test_with_a_weight_of_0_only_the_question_is_searched() -> None:
    understander = ShiftAwareUnderstander(RULES, ScriptedDetector(SHIFT), history_weight=0)
    assert weights(run(understander.understand(Query(text="which lamps?"), HISTORY))) == {"question": 1.0}


def test_after_a_change_the_first_message_of_the_subject_is_searched() -> None:
    lamps = [Message(role="user", text="lamps", is_shift=True), Message(role="assistant", text="Red.")]
    doors = [Message(role="user", text="big lamps"), Message(role="assistant", text="Blue.")]
    understanding, _ = understand(Drift(distance=0.2), [*HISTORY, *lamps, *doors])
    assert [variant.text for variant in understanding.variants] == ["which lamps?", "big lamps", "Blue.", "lamps"]
    understanding, _ = understand(Drift(distance=0.2), [*HISTORY, *lamps])
    assert [variant.text for variant in understanding.variants] == ["which lamps?", "lamps", "Red."]


def test_rules_carry_nothing_over_to_another_subject_and_a_models_rewrite_stays() -> None:
    rewrite = Variant(name="rewrite", text="red lamps", weight=1.0)
    carried = Variant(name="carried", text="lamps (keys)", weight=0.5)
    understood = Understanding(standalone="lamps (keys)", variants=(rewrite, carried), resolved={"it": "keys"})
    by_rules = leave_subject("lamps", replace(understood, method="rules"), 0.5)
    assert (by_rules.standalone, by_rules.resolved) == ("lamps", {})
    by_model = leave_subject("lamps", replace(understood, method="llm"), 0.5)
    assert (by_model.standalone, weights(by_model)) == ("lamps (keys)", {"rewrite": 1.0, "carried": 0.25})


def test_a_subject_is_stable_after_five_turns() -> None:
    assert [stability(turns) for turns in (0, 1, 5, 9)] == [0.0, 0.2, 1.0, 1.0]


def test_a_question_on_the_subject_is_searched_with_its_history() -> None:
    understanding, _ = understand(Drift(distance=0.2))
    assert [variant.name for variant in understanding.variants] == ["question", "previous", "answer"]
    assert (understanding.drift, understanding.is_shift) == (0.2, False)


def test_an_encoder_that_fails_is_reported_and_the_history_kept() -> None:
    understanding, stages = understand(ModelError("no encoder"))
    assert len(understanding.variants) == 3
    assert understanding.drift is None
    assert [(report.stage, report.error) for report in stages] == [("topic_shift", "no encoder")]


def test_the_answer_to_a_clarification_is_not_a_shift() -> None:
    asked_back = (HISTORY[0], replace(HISTORY[1], intent="clarification"))
    understanding, stages = understand(SHIFT, asked_back)
    assert (understanding.is_shift, stages) == (False, [])


def test_a_question_that_is_not_a_search_keeps_its_history() -> None:
    understander = ShiftAwareUnderstander(ByIntent("finalization"), ScriptedDetector(SHIFT))
    understanding = run(understander.understand(Query(text="sum up"), HISTORY))
    assert len(understanding.resolved) == 2
    assert (understanding.drift, understanding.is_shift) == (0.9, False)


def test_a_question_without_a_history_is_not_measured() -> None:
    understanding, stages = understand(SHIFT, ())
    assert (understanding, stages) == (Understanding(standalone="which lamps?"), [])


def test_settings_choose_the_detector_and_its_threshold() -> None:
    def detector(*overrides: str) -> Any:
        settings = load_settings(None, "default", ["embedding={type: hashing}", *overrides], {})
        return getattr(build_understander(settings, ByTerm(), RemoteModels()), "detector", None)

    assert detector().threshold == SHIFT_THRESHOLDS["medium"]
    assert detector("conversation.topic_shift={type: score, sensitivity: high}").threshold == SHIFT_THRESHOLDS["high"]
    assert detector("conversation.topic_shift={type: drift, window: 2}").window == 2
    assert detector("conversation.topic_shift={type: none}") is None


def test_parts_of_a_pipeline_share_one_cache() -> None:
    embedding = load_settings(None, "default", ["embedding={type: hashing}"], {}).embedding
    remote = RemoteModels()
    assert build_question_embedder(embedding, remote) is build_question_embedder(embedding, remote)
    assert build_question_embedder(embedding, RemoteModels()) is not build_question_embedder(embedding, remote)


def test_a_text_that_another_call_removes_from_the_cache_keeps_its_vector() -> None:
    class Slow(ByAngle):
        async def embed(self, texts: Sequence[str]) -> Matrix:
            await asyncio.sleep(0)
            return await super().embed(texts)

    async def embed() -> Matrix:
        cached = CachedEmbedder(Slow(angles), size=2)
        await cached.embed(["a"])
        _, vectors = await asyncio.gather(cached.embed(["c", "d"]), cached.embed(["a", "b"]))
        return vectors

    angles = {letter: 10.0 * index for index, letter in enumerate("abcd")}
    assert np.array_equal(run(embed()), run(ByAngle(angles).embed(["a", "b"])))


@given(st.lists(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=4), max_size=8), st.integers(1, 3))
def test_a_cache_of_any_size_returns_the_vectors_of_its_embedder(calls: list[list[str]], size: int) -> None:
    plain = ByAngle({letter: 10.0 * index for index, letter in enumerate("abcdef")})
    cached = CachedEmbedder(plain, size)
    for texts in calls:
        assert np.array_equal(run(cached.embed(texts)), run(plain.embed(texts)))


@given(st.floats(0, 180), st.floats(0, 180), st.floats(0, 10), st.floats(0, 10))
def test_the_distance_is_from_0_to_1_and_a_shift_is_far(first: float, second: float, lamp: float, rotat: float) -> None:
    angles = {"which lamps rotate?": 0.0, "keys": first, "Keys rotate monthly.": second}
    drift = measure("which lamps rotate?", angles, {"lamp": lamp, "rotat": rotat})
    assert drift.distance is not None
    assert 0 <= drift.distance <= 1
    assert drift.is_shift is (drift.distance > 1 - 0.25) or drift.distance == pytest.approx(0.75)
