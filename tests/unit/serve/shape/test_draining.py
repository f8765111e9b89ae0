"""A gateway that drains: what its responses signal to load balancers, and how SIGTERM makes it drain."""

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from jobs.ray_connection import keep_sigterm_handler
from serve.shape import draining
from serve.shape.draining import defer_sigterm, drain_when_terminated, is_sigterm_deferred


@pytest.fixture(autouse=True)
def former_handler() -> Iterator[None]:
    former = signal.getsignal(signal.SIGTERM)
    yield
    assert signal.getsignal(signal.SIGTERM) is former


def terminate_and_wait() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(60)
    pytest.fail("SIGTERM did not end the wait")


def test_sigterm_ends_the_watch_after_the_gateways_have_drained(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = list[object]()
    monkeypatch.setattr(draining, "drain", lambda names, _on_progress: steps.append(names))
    monkeypatch.setattr(draining.time, "sleep", steps.append)
    drain_when_terminated(terminate_and_wait, {"rag": 5.0, "other": 2.0}, steps.append)
    assert steps == ["draining: /readyz responds with 503; the gateway stops in 5 s", ["rag", "other"], 5.0]


def test_without_seconds_nothing_drains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draining, "drain", lambda *_: pytest.fail("it drained"))
    drain_when_terminated(terminate_and_wait, {"rag": 0.0}, lambda _: None)


def test_a_second_sigterm_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draining, "drain", lambda *_: terminate_and_wait())
    with pytest.raises(SystemExit, match="143"):
        drain_when_terminated(terminate_and_wait, {"rag": 5.0}, lambda _: None)


def test_a_sigterm_during_the_start_drains_the_gateways_when_they_are_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = list[object]()
    monkeypatch.setattr(draining, "drain", lambda names, _on_progress: steps.append(names))
    monkeypatch.setattr(draining.time, "sleep", steps.append)
    with defer_sigterm():
        assert not is_sigterm_deferred()
        os.kill(os.getpid(), signal.SIGTERM)
        assert is_sigterm_deferred()
        drain_when_terminated(lambda: pytest.fail("it served"), {"rag": 5.0}, lambda _: None)
    assert steps == [["rag"], 5.0]
    assert not is_sigterm_deferred()


def test_a_second_sigterm_during_the_start_ends_the_process() -> None:
    with defer_sigterm():
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(SystemExit, match="143"):
            terminate_and_wait()


def test_ray_does_not_replace_the_handler() -> None:
    with defer_sigterm():
        with keep_sigterm_handler():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
        assert is_sigterm_deferred()


def test_other_ends_of_the_watch_drain_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(draining, "drain", lambda *_: pytest.fail("it drained"))
    with pytest.raises(KeyboardInterrupt):
        drain_when_terminated(interrupt, {"rag": 5.0}, lambda _: None)
