"""Models that run in deployments, as the roles that they have in a process.

What Ray, Serve or a replica raise is ours from here on; a call whose replica died is made once more; a caller that is
cancelled, or out of time, cancels the work.
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
"""Seconds in which Serve learns that a replica is dead."""


class Response(Protocol):
    """Of Serve: awaited for what the method returns."""

    def __await__(self) -> Generator[Any, None, Any]: ...

    def cancel(self) -> None: ...


class Method(Protocol):
    """Of a deployment's handle."""

    def remote(self, asked: object, marks: Mapping[str, str]) -> Response: ...


class ScorerHandle(Protocol):
    @property
    def score(self) -> Method: ...


class EmbedderHandle(Protocol):
    @property
    def embed(self) -> Method: ...


class RemoteEmbedder:
    """A QueryEmbedder."""

    def __init__(self, handle: EmbedderHandle, breaker: Breaker) -> None:
        self._call = _Call(handle.embed, breaker, "embedder")

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """ModelError if the deployment breaks, OverloadedError if its queue is full, CircuitOpenError if it broke too
        often."""
        return cast(Matrix, await self._call.answer(list(texts)))


class RemotePairs:
    """A PairScorer."""

    def __init__(self, handle: ScorerHandle, breaker: Breaker, role: Literal["reranker", "judge"]) -> None:
        self._call = _Call(handle.score, breaker, role)

    async def score(self, pairs: Sequence[Pair]) -> list[float]:
        """ModelError if the deployment breaks, OverloadedError if its queue is full, CircuitOpenError if it broke too
        often."""
        return cast(list[float], await self._call.answer(list(pairs))) if pairs else []


class _Call:
    """Of a method that may be called twice with the same outcome."""

    def __init__(self, method: Method, breaker: Breaker, role: str) -> None:
        self._method, self._breaker, self._role = method, breaker, role

    async def answer(self, asked: object) -> object:
        with self._breaker.protect():
            try:
                return await self._tried(asked)
            except _GoneError:
                await asyncio.sleep(RETRY_AFTER)
            try:
                return await self._tried(asked)
            except _GoneError as error:
                raise ModelError(str(error)) from error

    async def _tried(self, asked: object) -> object:
        response = self._method.remote(asked, outgoing_values())
        try:
            return await response
        except (asyncio.CancelledError, TaskCancelledError) as error:
            if not is_ours():
                raise self._gone(error) from error
            response.cancel()
            raise asyncio.CancelledError from error
        except RagError as error:  # before others: a RayTaskError of one is one, too
            raise _plain(error) from None
        except Exception as error:  # a replica raises what it likes
            raise self._ours(_plain(error)) from error

    def _ours(self, error: Exception) -> RagError:
        match error:
            case BackPressureError():
                return OverloadedError(f"the deployment of the {self._role} has as many calls waiting as may wait")
            case RayActorError() | DeploymentUnavailableError() | ReplicaUnavailableError():
                return self._gone(error)
            case _:
                return ModelError(f"the deployment of the {self._role} broke: {type(error).__name__}")

    def _gone(self, error: BaseException) -> "_GoneError":
        return _GoneError(f"the deployment of the {self._role} is not there: {type(error).__name__}")


class _GoneError(ModelError):
    """The same may succeed with another replica."""


def _plain(error: Exception) -> Exception:
    """As the replica raised it."""
    return error.cause if isinstance(error, RayTaskError) and isinstance(error.cause, Exception) else error


def is_ours() -> bool:
    """Whether this task was cancelled, and not just the call: Serve raises the same for both."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
