"""Clients of the models that run in deployments. They have the roles that local models have.

Errors of Ray, Serve and the replicas become RagErrors here. A call whose replica died is repeated once. A caller that
is cancelled or times out cancels the work.
"""

import asyncio
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, Protocol, cast

from ray.exceptions import RayActorError, RayTaskError, TaskCancelledError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError, ReplicaUnavailableError

from rag_core.breaker import Breaker
from rag_core.errors import ModelError, OverloadedError, RagError
from rag_core.protocols import Pair
from rag_core.types import Matrix
from serve.telemetry import outgoing_values

RETRY_AFTER = 0.1
"""Seconds that Serve needs to notice a dead replica."""
_REPLICA_LOST = (
    *(RayActorError, DeploymentUnavailableError, ReplicaUnavailableError),
    *(asyncio.CancelledError, TaskCancelledError),
)
"""The exceptions of a call whose replica was lost, if the caller is not cancelled."""


class Response(Protocol):
    """A response of Serve. Awaiting it returns the method's result."""

    def __await__(self) -> Generator[Any, None, Any]: ...

    def cancel(self) -> None: ...


class Method(Protocol):
    """A method of a deployment's handle."""

    def remote(self, inputs: object, operation_values: Mapping[str, str]) -> Response: ...


class ScorerHandle(Protocol):
    @property
    def score(self) -> Method: ...


class EmbedderHandle(Protocol):
    @property
    def embed(self) -> Method: ...


class RemoteEmbedder:
    """A QueryEmbedder."""

    def __init__(self, handle: EmbedderHandle, breaker: Breaker) -> None:
        self._method = _RepeatableMethod(handle.embed, breaker, "embedder")

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """Raises ModelError if the deployment fails, OverloadedError if its queue is full, and CircuitOpenError after
        repeated failures."""
        return cast(Matrix, await self._method.call(list(texts)))


class RemotePairs:
    """A PairScorer."""

    def __init__(self, handle: ScorerHandle, breaker: Breaker, role: Literal["reranker", "judge"]) -> None:
        self._method = _RepeatableMethod(handle.score, breaker, role)

    async def score(self, pairs: Sequence[Pair]) -> list[float]:
        """Raises ModelError if the deployment fails, OverloadedError if its queue is full, and CircuitOpenError after
        repeated failures."""
        return cast(list[float], await self._method.call(list(pairs))) if pairs else []


class _RepeatableMethod:
    """A method without side effects, which can be called again if its replica is lost."""

    def __init__(self, method: Method, breaker: Breaker, role: str) -> None:
        self._method, self._breaker, self._deployment = method, breaker, f"the deployment of the {role}"

    async def call(self, inputs: object) -> object:
        with self._breaker.protect():
            try:
                return await self._call_once(inputs)
            except _ReplicaLostError:
                await asyncio.sleep(RETRY_AFTER)
            try:
                return await self._call_once(inputs)
            except _ReplicaLostError as error:
                raise ModelError(str(error)) from error

    async def _call_once(self, inputs: object) -> object:
        response = self._method.remote(inputs, outgoing_values())
        with translate_call_errors(self._deployment, response.cancel, self._failure_error):
            return await response

    def _failure_error(self, failure: str, is_lost: bool) -> ModelError:
        if is_lost:
            return _ReplicaLostError(f"{self._deployment} is unavailable: {failure}")
        return ModelError(f"{self._deployment} failed: {failure}")


class _ReplicaLostError(ModelError):
    """The replica of a call was lost. The call can succeed on another one."""


@contextmanager
def translate_call_errors(
    deployment: str, cancel: Callable[[], None], failure_error: Callable[[str, bool], RagError]
) -> Iterator[None]:
    """Translates the errors of a call's response, which the block awaits. RagErrors of the replica pass.

    `failure_error` makes the error from the name of the replica's exception, and from whether the replica was lost: the
    same call can succeed on another one. If the current task is cancelled, the call is too.
    """
    try:
        yield
    except RagError as error:  # before Exception: a RayTaskError with a RagError as its cause is both
        raise _unwrap(error) from None
    except (asyncio.CancelledError, Exception) as error:  # replicas can raise anything
        if is_task_cancelled():
            cancel()
            raise asyncio.CancelledError from error
        cause = _unwrap(error)
        if isinstance(cause, BackPressureError):
            raise OverloadedError(f"{deployment}: its queue is full") from error
        raise failure_error(type(cause).__name__, isinstance(cause, _REPLICA_LOST)) from error


def _unwrap(error: BaseException) -> BaseException:
    """The exception that the replica raised."""
    return error.cause if isinstance(error, RayTaskError) and isinstance(error.cause, Exception) else error


def is_task_cancelled() -> bool:
    """True if the current task is cancelled, False if only its call is. Serve raises the same exception for both."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
