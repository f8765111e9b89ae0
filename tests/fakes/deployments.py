"""A handle of Ray Serve whose calls return, fail or hang as a test scripts them."""

import asyncio
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ray.exceptions import RayTaskError

HANG = "hang"


def raised_in_replica(error: Exception) -> Exception:
    """The exception that a caller receives: its class inherits from Ray's exception and from the replica's."""
    received: Exception = RayTaskError("score", "Traceback ...", error).as_instanceof_cause()
    return received


@dataclass
class ScriptedResponse:
    """Returns its outcome, or raises it if it is an exception. HANG waits until it is cancelled."""

    outcome: object
    cancelled: bool = False

    def __await__(self) -> Generator[Any, None, Any]:
        return self._wait().__await__()

    async def _wait(self) -> object:
        if self.outcome is HANG:
            await asyncio.Event().wait()
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class ScriptedMethod:
    """One outcome per call; the last one is repeated."""

    outcomes: Sequence[object]
    inputs: list[object] = field(default_factory=list)
    operation_values: list[Mapping[str, str]] = field(default_factory=list)
    responses: list[ScriptedResponse] = field(default_factory=list)

    def remote(self, inputs: object, operation_values: Mapping[str, str]) -> ScriptedResponse:
        outcome = self.outcomes[min(len(self.inputs), len(self.outcomes) - 1)]
        self.inputs.append(inputs)
        self.operation_values.append(operation_values)
        self.responses.append(ScriptedResponse(outcome))
        return self.responses[-1]


class ScriptedHandle:
    def __init__(self, *outcomes: object) -> None:
        self.score = self.embed = ScriptedMethod(outcomes)

    @property
    def calls(self) -> int:
        return len(self.score.inputs)

    @property
    def cancelled(self) -> list[bool]:
        return [response.cancelled for response in self.score.responses]
