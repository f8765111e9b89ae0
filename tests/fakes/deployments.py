"""A handle of Ray Serve that answers, fails and hangs as a test says."""

import asyncio
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ray.exceptions import RayTaskError

HANG = "hang"


def raised_in_replica(error: Exception) -> Exception:
    """As the caller meets what a replica raised: an exception of two classes, Ray's and its own."""
    told: Exception = RayTaskError("score", "Traceback ...", error).as_instanceof_cause()
    return told


@dataclass
class ScriptedResponse:
    """Ends with what it is given, raises what is an exception, and at HANG waits until it is cancelled."""

    outcome: object
    cancelled: bool = False

    def __await__(self) -> Generator[Any, None, Any]:
        return self._awaited().__await__()

    async def _awaited(self) -> object:
        if self.outcome is HANG:
            await asyncio.Event().wait()
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class ScriptedMethod:
    """An outcome a call, the last one for all further calls."""

    outcomes: Sequence[object]
    asked: list[object] = field(default_factory=list)
    marks: list[Mapping[str, str]] = field(default_factory=list)
    responses: list[ScriptedResponse] = field(default_factory=list)

    def remote(self, asked: object, marks: Mapping[str, str]) -> ScriptedResponse:
        outcome = self.outcomes[min(len(self.asked), len(self.outcomes) - 1)]
        self.asked.append(asked)
        self.marks.append(marks)
        self.responses.append(ScriptedResponse(outcome))
        return self.responses[-1]


class ScriptedHandle:
    def __init__(self, *outcomes: object) -> None:
        self.score = self.embed = ScriptedMethod(outcomes)

    @property
    def calls(self) -> int:
        return len(self.score.asked)

    @property
    def cancelled(self) -> list[bool]:
        return [response.cancelled for response in self.score.responses]
