"""Models behind handles: what a call of one yields, raises or leaves undone."""

import asyncio
import pickle

import numpy as np
import pytest
import quiet_serve  # noqa: F401
from fakes.deployments import HANG, ScriptedHandle, raised_in_replica
from ray.exceptions import ActorDiedError, ActorUnavailableError, TaskCancelledError
from ray.serve._private.common import DeploymentID
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError

from rag_core.breaker import Breaker
from rag_core.errors import CircuitOpenError, ModelError, OverloadedError, RagError, StageTimeoutError, UsageError
from rag_core.stage import stage
from rag_core.telemetry.operation import Operation, enter_operation
from serve.models import remote
from serve.models.remote import RemoteEmbedder, RemotePairs

PAIRS = [("question", "text"), ("question", "other")]
ASKED = "what the customer asked"
DEAD = ActorDiedError()
GONE = ActorUnavailableError("gone", b"0" * 16)
UNDEPLOYED = DeploymentUnavailableError(DeploymentID("Reranker", "default"))


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "RETRY_AFTER", 0.0)


def score_pairs(handle: ScriptedHandle, breaker: Breaker | None = None) -> list[float]:
    return asyncio.run(RemotePairs(handle, breaker or Breaker("the reranker"), "reranker").score(PAIRS))


def catch_error(handle: ScriptedHandle) -> RagError:
    with pytest.raises(RagError) as caught:
        score_pairs(handle)
    return caught.value


def test_pairs_go_as_they_are_and_scores_come_back() -> None:
    handle = ScriptedHandle([0.5, 0.25])
    assert score_pairs(handle) == [0.5, 0.25]
    assert handle.score.inputs == [PAIRS]
    assert handle.score.operation_values == [{}]


def test_a_call_carries_the_marks_of_what_it_is_made_for() -> None:
    handle = ScriptedHandle([0.5, 0.25])
    with enter_operation(Operation(name="retrieve", correlation_id="c0ffee")):
        score_pairs(handle)
    assert handle.score.operation_values[0]["correlation_id"] == "c0ffee"


def test_no_pairs_are_not_asked_about_but_no_texts_have_a_shape() -> None:
    handle = ScriptedHandle(np.empty((0, 8)))
    assert asyncio.run(RemotePairs(handle, Breaker("the judge"), "judge").score([])) == []
    assert handle.calls == 0
    assert asyncio.run(RemoteEmbedder(handle, Breaker("the embedder")).embed([])).shape == (0, 8)


@pytest.mark.parametrize("dead", [DEAD, GONE, UNDEPLOYED, asyncio.CancelledError(), TaskCancelledError()])
def test_a_call_whose_replica_is_gone_is_made_once_more(dead: BaseException) -> None:
    handle = ScriptedHandle(dead, [0.5, 0.25])
    assert score_pairs(handle) == [0.5, 0.25]
    assert handle.calls == 2
    twice = ScriptedHandle(dead, dead, [0.5, 0.25])
    error = catch_error(twice)
    assert type(error).__mro__[-5:] == ModelError.__mro__[-5:]
    assert str(error) == f"the deployment of the reranker is unavailable: {type(dead).__name__}"
    assert twice.calls == 2


@pytest.mark.parametrize("raised", [UsageError("no text"), ModelError("could not compute")])
def test_our_errors_from_a_replica_are_raised_unchanged_and_not_retried(raised: RagError) -> None:
    for exception in (raised, raised_in_replica(raised)):
        handle = ScriptedHandle(exception)
        error = catch_error(handle)
        assert type(error) is type(raised)
        assert str(error) == str(raised)
        assert type(pickle.loads(pickle.dumps(error))) is type(raised)  # noqa: S301
        assert handle.calls == 1


@pytest.mark.parametrize("wrapped", [True, False])
def test_any_other_error_is_reported_by_its_type_and_never_by_its_text(wrapped: bool) -> None:
    error = catch_error(ScriptedHandle(raised_in_replica(ValueError(ASKED)) if wrapped else ValueError(ASKED)))
    assert isinstance(error, ModelError)
    assert str(error) == "the deployment of the reranker failed: ValueError"


def test_a_full_queue_is_overload_and_is_not_tried_again() -> None:
    handle = ScriptedHandle(BackPressureError(512, 512, 429, 1.0))
    error = catch_error(handle)
    assert isinstance(error, OverloadedError)
    assert "the deployment of the reranker: its queue is full" in str(error)
    assert handle.calls == 1


def test_a_caller_that_is_cancelled_cancels_the_call_and_stays_cancelled() -> None:
    handle = ScriptedHandle(HANG)

    async def cancel_call() -> None:
        task = asyncio.create_task(RemotePairs(handle, Breaker("the reranker"), "reranker").score(PAIRS))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel_call())
    assert handle.cancelled == [True]


def test_a_stage_that_is_out_of_time_cancels_the_call() -> None:
    handle, breaker = ScriptedHandle(HANG), Breaker("the reranker")

    async def late() -> None:
        async with stage("rerank", 0.01):
            await RemotePairs(handle, breaker, "reranker").score(PAIRS)

    for _ in range(6):
        with pytest.raises(StageTimeoutError):
            asyncio.run(late())
    assert handle.cancelled == [True] * 6
    assert breaker.state == "closed"


def test_after_five_failures_nothing_is_asked_for_a_while() -> None:
    handle, breaker = ScriptedHandle(DEAD), Breaker("the reranker")
    for _ in range(5):
        with pytest.raises(ModelError):
            score_pairs(handle, breaker)
    assert (handle.calls, breaker.state) == (10, "open")
    with pytest.raises(CircuitOpenError, match="the reranker failed 5 times in a row"):
        score_pairs(handle, breaker)
    assert handle.calls == 10


@pytest.mark.parametrize("outcome", [BackPressureError(1, 1), UsageError("no text")])
def test_overload_and_what_the_caller_did_leave_the_breaker_closed(outcome: Exception) -> None:
    handle, breaker = ScriptedHandle(outcome), Breaker("the reranker")
    for _ in range(20):
        with pytest.raises(RagError):
            score_pairs(handle, breaker)
    assert (handle.calls, breaker.state) == (20, "closed")
