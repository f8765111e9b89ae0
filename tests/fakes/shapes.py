"""A graph with a scripted language model, for machines without vLLM.

The model is deployed and called like one of `ray.serve.llm`. A Serve config names it as `fakes.shapes:build`.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

from ray import serve
from ray.serve import Application

from serve.app import build_application
from serve.gateway_settings import GatewaySettings
from serve.models.llm import ChatCall, LlmSettings, ResponseStream
from serve.models.model_connections import Engine, Handle, llm_name
from serve.shape.arguments import Arguments, settings_from_arguments

PIECES = ("Keys are replaced ", "every 45 days [1].")


@serve.deployment(max_ongoing_requests=64)
class Scripted:
    """A model that always gives the same answer, counts its calls, and can be paused in the middle."""

    def __init__(self) -> None:
        self._questions, self._resumed = 0, asyncio.Event()
        self._resumed.set()

    async def chat(self, _body: Mapping[str, Any]) -> AsyncIterator[list[str]]:
        self._questions += 1
        for piece in PIECES:
            yield [_event({"index": 0, "delta": {"content": piece}, "finish_reason": None})]
            await self._resumed.wait()
        yield [_event({"index": 0, "delta": {}, "finish_reason": "stop"}), "data: [DONE]\n\n"]

    async def count_questions(self) -> int:
        return self._questions

    async def hold(self) -> None:
        self._resumed.clear()

    async def resume(self) -> None:
        self._resumed.set()

    async def check_health(self) -> None:
        pass


def chat(handle: Handle) -> ChatCall:
    streaming = handle.options(stream=True).chat

    def begin_stream(body: Mapping[str, Any]) -> ResponseStream:
        return cast(ResponseStream, streaming.remote(dict(body)))

    return begin_stream


def build_scripted(settings: LlmSettings) -> Application:
    named = Scripted.options(name=llm_name(settings), ray_actor_options={"num_cpus": 0})  # type: ignore[attr-defined]
    app: Application = named.bind()
    return app


ENGINE = Engine(deployment=build_scripted, chat=chat)


def build(arguments: Arguments) -> Application:
    return build_application(GatewaySettings(own=settings_from_arguments(arguments)), arguments, ENGINE)


def _event(choice: Mapping[str, Any]) -> str:
    return f"data: {json.dumps({'object': 'chat.completion.chunk', 'choices': [choice]})}\n\n"
