"""An OpenAI-compatible endpoint on the loopback, over real sockets, that answers as a test tells it."""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Event, Thread
from time import monotonic
from typing import Any, Literal, TypeAlias

HANG: Literal["hang"] = "hang"
"""Nothing more, until the client leaves or the endpoint stops."""

CUT: Literal["cut"] = "cut"
"""The connection is dropped, in the middle of what it is in."""

Step: TypeAlias = bytes | Literal["hang", "cut"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedHttpResponse:
    """One response: its body step by step. With `slow`, the headers do not come either until the client leaves."""

    steps: Sequence[Step] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": "text/event-stream"})
    slow: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedRequest:
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    at: float


@dataclass(slots=True)
class Endpoint:
    """Plays in their order, the last one again and again. `left` is set when a client leaves a response unread."""

    plays: Sequence[ScriptedHttpResponse]
    requests: list[ReceivedRequest] = field(default_factory=list)
    client_left: Event = field(default_factory=Event)
    connections: int = 0
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def prompts(self) -> list[list[dict[str, str]]]:
        return [list(request.body["messages"]) for request in self.requests]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while await self._exchange(reader, writer):
                    pass
        finally:
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        self.requests.append(await _read(reader))
        play = self.plays[min(len(self.requests), len(self.plays)) - 1]
        gone = asyncio.create_task(reader.read(1))
        if play.slow:
            await self._hang(gone)
            return False
        writer.write(_head(play))
        for step in play.steps:
            await writer.drain()
            if step == HANG:
                await self._hang(gone)
                return False
            if step == CUT:
                writer.transport.abort()
                return False
            writer.write(b"%x\r\n%b\r\n" % (len(step), step))
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        gone.cancel()
        with suppress(asyncio.CancelledError):
            await gone
        return True

    async def _hang(self, gone: "asyncio.Task[bytes]") -> None:
        with suppress(ConnectionError):
            await gone
        self.client_left.set()


@contextmanager
def run_endpoint(*plays: ScriptedHttpResponse) -> Iterator[Endpoint]:
    endpoint, started, stop = Endpoint(plays), Event(), Event()
    thread = Thread(target=lambda: asyncio.run(_served(endpoint, started, stop)), daemon=True)
    thread.start()
    assert started.wait(60)
    try:
        yield endpoint
    finally:
        stop.set()
        thread.join()


async def _served(endpoint: Endpoint, started: Event, stop: Event) -> None:
    server = await asyncio.start_server(endpoint.serve, "127.0.0.1", 0)
    endpoint.port = server.sockets[0].getsockname()[1]
    started.set()
    await asyncio.to_thread(stop.wait)
    server.close()


async def _read(reader: asyncio.StreamReader) -> ReceivedRequest:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    lines = [line.partition(": ") for line in head.splitlines()[1:] if line]
    headers = {name.lower(): value for name, _, value in lines}
    body = await reader.readexactly(int(headers["content-length"]))
    return ReceivedRequest(headers=headers, body=json.loads(body), at=monotonic())


def _head(play: ScriptedHttpResponse) -> bytes:
    headers = {**play.headers, "Transfer-Encoding": "chunked"}
    lines = [f"HTTP/1.1 {play.status} Told", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def event(told: Any) -> bytes:
    return f"data: {told if isinstance(told, str) else json.dumps(told)}\n\n".encode()


def piece(text: str) -> bytes:
    return event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]})


def end(finish: str = "stop", prompt: int = 40, completion: int = 4, cached: int = 32) -> list[bytes]:
    """The chunks that a whole stream ends with."""
    details = {"cached_tokens": cached}
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "prompt_tokens_details": details}
    finished = {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}
    return [event(finished), event({"choices": [], "usage": usage}), event("[DONE]")]


def stream_play(*texts: str) -> ScriptedHttpResponse:
    """As vLLM and OpenAI do it: first the role, then the text, then why it ended, then the usage."""
    role = event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
    return ScriptedHttpResponse(steps=[role, *map(piece, texts), *end()])


def whole_play(text: str, logprobs: Sequence[Mapping[str, float]] = ()) -> ScriptedHttpResponse:
    """Not streamed; `logprobs` are each token's alternatives."""
    choice: dict[str, Any] = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    if logprobs:
        tops = [[{"token": token, "logprob": value} for token, value in each.items()] for each in logprobs]
        choice["logprobs"] = {"content": [{"token": "", "logprob": 0.0, "top_logprobs": top} for top in tops]}
    return _json(200, {"choices": [choice]})


def error_play(status: int, told: Any, **headers: str) -> ScriptedHttpResponse:
    return _json(status, told, **{name.replace("_", "-"): value for name, value in headers.items()})


def _json(status: int, told: Any, **headers: str) -> ScriptedHttpResponse:
    return ScriptedHttpResponse(
        status=status, steps=[json.dumps(told).encode()], headers={"Content-Type": "application/json", **headers}
    )
