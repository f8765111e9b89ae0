"""The end of `rag serve` by SIGTERM, in steps, so that a load balancer in front of several gateways loses no request.

First `/readyz` responds with 503, and every response closes its connection. The gateway still serves for
`serving.drain_s` seconds, in which load balancers notice. Then Serve waits for the requests in progress.
"""

import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn

from rag_core.errors import ClusterError

CALL_SECONDS = 10.0
"""Seconds in which the gateways confirm that they drain. A gateway that does not respond serves nobody any more."""


@contextmanager
def defer_sigterm() -> Iterator[None]:
    """Remembers a SIGTERM in the block, in which the gateway starts: Ray must not be interrupted while it starts.

    `is_sigterm_deferred` reports it, and `drain_when_terminated` acts on it. A second SIGTERM ends the process.
    """
    previous = signal.signal(signal.SIGTERM, _Deferral())
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def is_sigterm_deferred() -> bool:
    return _has_deferred(signal.getsignal(signal.SIGTERM))


def drain_when_terminated(
    watch: Callable[[], object], drain_seconds: Mapping[str, float], on_progress: Callable[[str], None]
) -> None:
    """Calls `watch`, which SIGTERM ends, and then drains the gateways. A second SIGTERM ends the process.

    `drain_seconds` is by name of the application. A SIGTERM that was deferred counts as the first one.
    """

    def terminate(_number: int, _frame: object) -> NoReturn:
        raise _TerminatedError

    previous = signal.getsignal(signal.SIGTERM)
    try:
        signal.signal(signal.SIGTERM, terminate)
        if _has_deferred(previous):
            raise _TerminatedError
        watch()
    except _TerminatedError:
        signal.signal(signal.SIGTERM, exit_at_sigterm)
        seconds = max(drain_seconds.values(), default=0.0)
        on_progress(f"draining: /readyz responds with 503; the gateway stops in {seconds:g} s")
        if seconds:
            drain(list(drain_seconds), on_progress)
            time.sleep(seconds)
    finally:
        signal.signal(signal.SIGTERM, previous)


def exit_at_sigterm(number: int, _frame: object) -> NoReturn:
    """A signal handler that ends the process with the exit code of shells for the signal."""
    sys.exit(128 + number)


def drain(applications: list[str], on_progress: Callable[[str], None]) -> None:
    """Calls `drain` of every replica of the gateways. Reports an error and goes on, because the gateways end anyway."""
    from ray import serve
    from ray.exceptions import RayError
    from ray.serve.exceptions import RayServeException

    from serve.shape.arguments import GATEWAY_NAME

    for name in applications:
        try:
            serve.get_deployment_handle(GATEWAY_NAME, name).broadcast("drain").results(timeout_s=CALL_SECONDS)
        except (RayError, RayServeException, TimeoutError) as error:
            on_progress(f"error: {ClusterError(f'{name} does not drain: {error}')}")


@dataclass(slots=True)
class _Deferral:
    """A signal handler that remembers the signal. The second one ends the process."""

    has_arrived: bool = False

    def __call__(self, number: int, frame: object) -> None:
        if self.has_arrived:
            exit_at_sigterm(number, frame)
        self.has_arrived = True


def _has_deferred(handler: object) -> bool:
    return isinstance(handler, _Deferral) and handler.has_arrived


class _TerminatedError(BaseException):
    """SIGTERM arrived. No other code may catch it."""
