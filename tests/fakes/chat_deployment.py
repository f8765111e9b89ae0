"""A scripted deployment of `ray.serve.llm`: all that a call of its handle yields, raises or leaves out."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ray.exceptions import ActorDiedError

HANG = "hang"


@dataclass
class ScriptedCall:
    """Yields what it is given, raises what is an exception, and waits for ever at HANG."""

    yields: Sequence[object]
    cancelled: bool = False
    at: int = 0

    async def __anext__(self) -> object:
        if self.at == len(self.yields):
            raise StopAsyncIteration
        output = self.yields[self.at]
        self.at += 1
        if output == HANG:
            await asyncio.Event().wait()
        if isinstance(output, BaseException):
            raise output
        return output

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class ScriptedDeployment:
    """Each call is a `ScriptedCall` of the same, but the first `replaced` ones lose their replica."""

    yields: Sequence[object]
    replaced: int = 0
    asked: list[Mapping[str, Any]] = field(default_factory=list)
    calls: list[ScriptedCall] = field(default_factory=list)

    def chat(self, body: Mapping[str, Any]) -> ScriptedCall:
        self.asked.append(body)
        dies = len(self.calls) < self.replaced
        self.calls.append(ScriptedCall([ActorDiedError()] if dies else self.yields))
        return self.calls[-1]

    @property
    def cancelled(self) -> list[bool]:
        return [call.cancelled for call in self.calls]


def event(data: Any) -> list[str]:
    return [f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n"]


def piece(text: str, finish: str | None = None) -> list[str]:
    return event({"choices": [{"delta": {"content": text}, "finish_reason": finish}]})
