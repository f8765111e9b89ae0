"""A scripted OpenAI-compatible endpoint on loopback, over real sockets."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from threading import Event, Thread
from time import monotonic
from typing import Any, Literal, TypeAlias

from rag_core.models.chat import ChatClient
from rag_core.models.endpoint import HttpPool, HttpTransport

HANG: Literal["hang"] = "hang"
"""The endpoint sends nothing more until the client disconnects or the endpoint stops."""

CUT: Literal["cut"] = "cut"
"""The endpoint drops the connection in the middle of the response."""

Step: TypeAlias = bytes | Literal["hang", "cut"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedHttpResponse:
    """A response: its body step by step. With `slow`, it never sends even the headers."""

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
    """Sends the responses in order, and repeats the last one.

    `client_left` is set when a client disconnects before the end of a response, `disconnected` when any connection
    ends. `connections` counts all there have been, `open_connections` those that have not ended.
    """

    responses: Sequence[ScriptedHttpResponse]
    requests: list[ReceivedRequest] = field(default_factory=list)
    client_left: Event = field(default_factory=Event)
    disconnected: Event = field(default_factory=Event)
    connections: int = 0
    open_connections: int = 0
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def prompts(self) -> list[list[dict[str, str]]]:
        return [list(request.body["messages"]) for request in self.requests]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open_connections += 1
        try:
            while await self._exchange(reader, writer):
                pass
        except ConnectionError:
            self.client_left.set()  # before its response began to wait
        except asyncio.IncompleteReadError as error:
            if error.partial or not self.requests:
                self.client_left.set()  # before its request was complete
        finally:
            writer.close()
            self.open_connections -= 1
            self.disconnected.set()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        self.requests.append(await _read(reader))
        response = self.responses[min(len(self.requests), len(self.responses)) - 1]
        client_gone = asyncio.create_task(reader.read(1))
        if response.slow:
            await self._hang(client_gone)
            return False
        writer.write(_head(response))
        for step in response.steps:
            await writer.drain()
            if step == HANG:
                await self._hang(client_gone)
                return False
            if step == CUT:
                writer.transport.abort()
                return False
            writer.write(b"%x\r\n%b\r\n" % (len(step), step))
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        client_gone.cancel()
        with suppress(asyncio.CancelledError):
            await client_gone
        return True

    async def _hang(self, client_gone: "asyncio.Task[bytes]") -> None:
        with suppress(ConnectionError):
            await client_gone
        self.client_left.set()


@contextmanager
def run_endpoint(*responses: ScriptedHttpResponse) -> Iterator[Endpoint]:
    endpoint, started, stop = Endpoint(responses), Event(), Event()
    thread = Thread(target=lambda: asyncio.run(_run_server(endpoint, started, stop)), daemon=True)
    thread.start()
    assert started.wait(60)
    try:
        yield endpoint
    finally:
        stop.set()
        thread.join()


@asynccontextmanager
async def connect(endpoint: Endpoint, api_key_env: str = "", **settings: Any) -> AsyncIterator[ChatClient]:
    """A client whose connections are closed with the block. By default it waits long and does not retry."""
    options = {"first_token_timeout": 60.0, "stall_timeout": 60.0, "attempts": 1} | settings
    async with aclosing(HttpPool()) as pool:
        transport = HttpTransport(pool, base_url=endpoint.url, api_key_env=api_key_env)
        yield ChatClient(transport, model="llama", **options)


async def _run_server(endpoint: Endpoint, started: Event, stop: Event) -> None:
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


def _head(response: ScriptedHttpResponse) -> bytes:
    headers = {**response.headers, "Transfer-Encoding": "chunked"}
    lines = [f"HTTP/1.1 {response.status} Scripted", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def event(data: Any) -> bytes:
    return f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()


def piece(text: str) -> bytes:
    return event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]})


def end(finish: str = "stop", prompt: int = 40, completion: int = 4, cached: int = 32) -> list[bytes]:
    """The last chunks of a complete stream."""
    details = {"cached_tokens": cached}
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "prompt_tokens_details": details}
    finished = {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}
    return [event(finished), event({"choices": [], "usage": usage}), event("[DONE]")]


def stream_response(*texts: str) -> ScriptedHttpResponse:
    """A stream like those of vLLM and OpenAI: the role, the text, the finish reason, the usage."""
    role = event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
    return ScriptedHttpResponse(steps=[role, *map(piece, texts), *end()])


def whole_response(text: str, logprobs: Sequence[Mapping[str, float]] = ()) -> ScriptedHttpResponse:
    """A response that is not streamed. `logprobs` has the alternatives of each token."""
    choice: dict[str, Any] = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    if logprobs:
        tops = [
            [{"token": token, "logprob": value} for token, value in alternatives.items()] for alternatives in logprobs
        ]
        choice["logprobs"] = {"content": [{"token": "", "logprob": 0.0, "top_logprobs": top} for top in tops]}
    return _json(200, {"choices": [choice]})


def error_response(status: int, body: Any, **headers: str) -> ScriptedHttpResponse:
    return _json(status, body, **{name.replace("_", "-"): value for name, value in headers.items()})


def _json(status: int, body: Any, **headers: str) -> ScriptedHttpResponse:
    return ScriptedHttpResponse(
        status=status, steps=[json.dumps(body).encode()], headers={"Content-Type": "application/json", **headers}
    )
