"""A gateway that drains: what its responses signal to load balancers, and how SIGTERM makes it drain."""

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from serve.shape import draining
from serve.shape.draining import drain_when_terminated


@pytest.fixture(autouse=True)
def former_handler() -> Iterator[None]:
    former = signal.getsignal(signal.SIGTERM)
    yield
    assert signal.getsignal(signal.SIGTERM) is former


def terminate_and_wait() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(60)
    pytest.fail("SIGTERM did not end the block")


def test_sigterm_ends_the_block_after_the_gateways_have_drained(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = list[object]()
    monkeypatch.setattr(draining, "drain", lambda names, _on_progress: steps.append(names))
    monkeypatch.setattr(draining.time, "sleep", steps.append)
    with drain_when_terminated({"rag": 5.0, "other": 2.0}, steps.append):
        terminate_and_wait()
    assert steps == ["draining: /readyz responds with 503; the gateway stops in 5 s", ["rag", "other"], 5.0]


def test_without_seconds_nothing_drains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draining, "drain", lambda *_: pytest.fail("it drained"))
    with drain_when_terminated({"rag": 0.0}, lambda _: None):
        terminate_and_wait()


def test_a_second_sigterm_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    class SecondError(Exception):
        pass

    def raise_second(_number: int, _frame: object) -> None:
        raise SecondError

    former = signal.signal(signal.SIGTERM, raise_second)
    monkeypatch.setattr(draining, "drain", lambda *_: terminate_and_wait())
    try:
        with pytest.raises(SecondError), drain_when_terminated({"rag": 5.0}, lambda _: None):
            terminate_and_wait()
    finally:
        signal.signal(signal.SIGTERM, former)


def test_other_ends_of_the_block_drain_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draining, "drain", lambda *_: pytest.fail("it drained"))
    with pytest.raises(KeyboardInterrupt), drain_when_terminated({"rag": 5.0}, lambda _: None):
        raise KeyboardInterrupt
