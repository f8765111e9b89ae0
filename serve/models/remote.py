"""Clients of the models that run in deployments. They have the roles that local models have.

Errors of Ray, Serve and the replicas become RagErrors here. A call whose replica died is repeated once. A caller that
is cancelled or times out cancels the work.
"""

import asyncio
from collections.abc import Generator, Mapping, Sequence
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
        try:
            return await response
        except (asyncio.CancelledError, TaskCancelledError) as error:
            if not is_task_cancelled():
                raise self._replica_lost(error) from error
            response.cancel()
            raise asyncio.CancelledError from error
        except RagError as error:  # before Exception: a RayTaskError with a RagError as its cause is both
            raise _unwrap(error) from None
        except Exception as error:  # replicas can raise anything
            match _unwrap(error):
                case BackPressureError():
                    raise OverloadedError(f"{self._deployment}: its queue is full") from error
                case RayActorError() | DeploymentUnavailableError() | ReplicaUnavailableError() as lost:
                    raise self._replica_lost(lost) from error
                case failure:
                    raise ModelError(f"{self._deployment} failed: {type(failure).__name__}") from error

    def _replica_lost(self, error: BaseException) -> "_ReplicaLostError":
        return _ReplicaLostError(f"{self._deployment} is unavailable: {type(error).__name__}")


class _ReplicaLostError(ModelError):
    """The replica of a call was lost. The call can succeed on another one."""


def _unwrap(error: Exception) -> Exception:
    """The exception that the replica raised."""
    return error.cause if isinstance(error, RayTaskError) and isinstance(error.cause, Exception) else error


def is_task_cancelled() -> bool:
    """True if the current task is cancelled, False if only its call is. Serve raises the same exception for both."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
