"""The end of `rag serve` by SIGTERM, in steps, so that a load balancer in front of several gateways loses no request.

First `/readyz` responds with 503, and every response closes its connection. The gateway still serves for
`serving.drain_s` seconds, in which load balancers notice. Then Serve waits for the requests in progress.
"""

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NoReturn

from rag_core.errors import ClusterError

CALL_SECONDS = 10.0
"""Seconds in which the gateways confirm that they drain. A gateway that does not respond serves nobody any more."""


@contextmanager
def drain_when_terminated(drain_seconds: Mapping[str, float], on_progress: Callable[[str], None]) -> Iterator[None]:
    """Ends the block at SIGTERM, without an error, after the gateways have drained. A second SIGTERM ends it at once.

    `drain_seconds` is by name of the application. Call it after Ray has started, which installs its own handler.
    """

    def terminate(_number: int, _frame: object) -> NoReturn:
        raise _TerminatedError

    previous = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    except _TerminatedError:
        signal.signal(signal.SIGTERM, previous)
        seconds = max(drain_seconds.values(), default=0.0)
        on_progress(f"draining: /readyz responds with 503; the gateway stops in {seconds:g} s")
        if seconds:
            drain(list(drain_seconds), on_progress)
            time.sleep(seconds)
    finally:
        signal.signal(signal.SIGTERM, previous)


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


class _TerminatedError(BaseException):
    """SIGTERM arrived. No other code may catch it."""
