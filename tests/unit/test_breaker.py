"""The circuit breaker, by a clock that only the test moves."""

import asyncio
from contextlib import AbstractContextManager, suppress

import pytest
from example_counts import scale_examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rag_core.breaker import MAX_PAUSE, Breaker
from rag_core.errors import CircuitOpenError, ModelError, OverloadedError, UsageError


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def build_breaker(clock: Clock, jitter: float = 0.0) -> Breaker:
    return Breaker("the reranker", clock=clock, jitter=lambda: jitter)


def fail(breaker: Breaker, times: int = 1, error: BaseException | None = None) -> None:
    for _ in range(times):
        with suppress(ModelError, UsageError, OverloadedError, asyncio.CancelledError), breaker.protect():
            raise error or ModelError("gone")


def succeed(breaker: Breaker) -> None:
    with breaker.protect():
        pass


def test_four_failures_leave_it_closed_and_the_fifth_opens_it() -> None:
    breaker = build_breaker(Clock())
    fail(breaker, 4)
    assert breaker.state == "closed"
    fail(breaker)
    assert breaker.state == "open"
    with pytest.raises(CircuitOpenError, match=r"the reranker failed 5 times in a row; the next try is in 1\.0 s"):
        succeed(breaker)


def test_a_success_between_failures_restarts_the_count() -> None:
    breaker = build_breaker(Clock())
    fail(breaker, 4)
    succeed(breaker)
    fail(breaker, 4)
    assert breaker.state == "closed"


@pytest.mark.parametrize("error", [UsageError("?"), OverloadedError("!"), asyncio.CancelledError()])
def test_usage_errors_overload_and_cancelled_calls_open_no_circuit(error: BaseException) -> None:
    breaker = build_breaker(Clock())
    fail(breaker, 20, error)
    assert breaker.state == "closed"
    fail(breaker, 4)
    fail(breaker, 1, error)
    fail(breaker)
    assert breaker.state == "open"


def test_pauses_double_from_1_to_60_seconds_and_a_success_brings_them_back_to_1() -> None:
    clock = Clock()
    breaker = build_breaker(clock)
    fail(breaker, 5)
    for pause in (1, 2, 4, 8, 16, 32, 60, 60):
        clock.now += pause - 0.01
        assert breaker.state == "open"
        clock.now += 0.02
        assert breaker.state == "half_open"
        fail(breaker)
    clock.now += 61
    succeed(breaker)
    assert breaker.state == "closed"
    fail(breaker, 5)
    clock.now += 1.01
    assert breaker.state == "half_open"


def test_after_2000_openings_in_a_row_the_pause_is_still_60_seconds() -> None:
    clock = Clock()
    breaker = build_breaker(clock)
    fail(breaker, 5)
    for _ in range(2000):
        clock.now += 61
        fail(breaker)
    assert breaker.state == "open"
    clock.now += 60.01
    assert breaker.state == "half_open"


def test_jitter_shortens_a_pause_by_up_to_a_half() -> None:
    clock = Clock()
    breaker = build_breaker(clock, jitter=1.0)
    fail(breaker, 5)
    clock.now += 0.49
    assert breaker.state == "open"
    clock.now += 0.02
    assert breaker.state == "half_open"


def test_half_open_one_call_tries_and_the_others_are_refused() -> None:
    clock = Clock()
    breaker = build_breaker(clock)
    fail(breaker, 5)
    clock.now += 2
    with breaker.protect():
        with pytest.raises(CircuitOpenError):
            succeed(breaker)
        assert breaker.state == "half_open"
    assert breaker.state == "closed"


def test_a_trial_that_is_cancelled_lets_another_try() -> None:
    clock = Clock()
    breaker = build_breaker(clock)
    fail(breaker, 5)
    clock.now += 2
    fail(breaker, 1, asyncio.CancelledError())
    assert breaker.state == "half_open"
    succeed(breaker)
    assert breaker.state == "closed"


def test_calls_that_began_before_it_opened_change_nothing_any_more() -> None:
    clock = Clock()
    breaker = build_breaker(clock)
    late, failing = breaker.protect(), breaker.protect()
    late.__enter__()
    failing.__enter__()
    fail(breaker, 5)
    late.__exit__(None, None, None)
    assert breaker.state == "open"
    with suppress(ModelError):
        failing.__exit__(ModelError, ModelError("gone"), None)
    clock.now += 1.01
    assert breaker.state == "half_open"


def test_nor_do_they_count_once_it_is_closed_again() -> None:
    clock = Clock()
    breaker = build_breaker(clock)
    failing = [breaker.protect() for _ in range(5)]
    for call in failing:
        call.__enter__()
    fail(breaker, 5)
    clock.now += 2
    succeed(breaker)
    for call in failing:
        with suppress(ModelError):
            call.__exit__(ModelError, ModelError("gone"), None)
    assert breaker.state == "closed"


class Calls(RuleBasedStateMachine):
    """Calls that overlap and end in any order, next to what the drawing in the module promises."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.breaker = build_breaker(self.clock)
        self.open_calls: list[AbstractContextManager[None]] = []
        self.trial: AbstractContextManager[None] | None = None

    @rule()
    def begin(self) -> None:
        state, call = self.breaker.state, self.breaker.protect()
        admitted = state == "closed" or (state == "half_open" and self.trial is None)
        try:
            call.__enter__()
        except CircuitOpenError:
            assert not admitted
            return
        assert admitted
        self.open_calls.append(call)
        self.trial = call if state == "half_open" else self.trial

    @precondition(lambda self: self.open_calls)
    @rule(data=st.data(), outcome=st.sampled_from(["ok", "broke", "refused", "cancelled"]))
    def end(self, data: st.DataObject, outcome: str) -> None:
        call = self.open_calls.pop(data.draw(st.integers(0, len(self.open_calls) - 1)))
        before, tried = self.breaker.state, call is self.trial
        ends = {"broke": ModelError("gone"), "refused": OverloadedError("!"), "cancelled": asyncio.CancelledError()}
        error = ends.get(outcome)
        with suppress(ModelError, OverloadedError, asyncio.CancelledError):
            call.__exit__(type(error) if error else None, error, None)
        if tried:
            self.trial = None
            assert self.breaker.state == {"ok": "closed", "broke": "open"}.get(outcome, "half_open")
        elif before != "closed":
            assert self.breaker.state == before

    @rule(seconds=st.sampled_from([0.3, 1.0, 5.0, MAX_PAUSE]))
    def wait(self, seconds: float) -> None:
        before = self.breaker.state
        self.clock.now += seconds
        if before != "open":
            assert self.breaker.state == before
        elif seconds == MAX_PAUSE:
            assert self.breaker.state == "half_open"

    @invariant()
    def one_call_tries_at_the_most(self) -> None:
        assert self.trial is None or self.breaker.state == "half_open"


TestCalls = Calls.TestCase
TestCalls.settings = settings(max_examples=scale_examples(60), stateful_step_count=40, deadline=None)
