"""Clients that send or read slowly, over real connections."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import httpx2
import pytest
import uvicorn
from fakes.serving import RecordingRetriever, scripted_graph
from starlette.requests import ClientDisconnect
from starlette.types import Message

from rag_core.config import ServingSettings
from serve.gateway import build_fastapi
from serve.http.connection_limits import MAX_HEADER_BYTES, LimitedProtocol
from serve.http.transfer_deadline import TransferDeadline
from serve.profiles import ServedProfiles

SECONDS = 0.2


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    """A gateway in which each part of a request must arrive within `SECONDS`."""
    graph = scripted_graph(RecordingRetriever(hits=[]))
    serving = ServingSettings(transfer_timeout_s=SECONDS)
    with run_server(
        build_fastapi(ServedProfiles(replace(graph, settings=graph.settings.model_copy(update={"serving": serving}))))
    ) as it:
        yield it


@contextmanager
def run_server(app: object) -> Iterator[tuple[str, int]]:
    class Protocol(LimitedProtocol):
        header_seconds = SECONDS

    server = uvicorn.Server(uvicorn.Config(app, http=Protocol, port=0, log_level="critical", ws="none"))  # type: ignore[arg-type]
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started and thread.is_alive():
            time.sleep(0.005)
        yield server.servers[0].sockets[0].getsockname()
    finally:
        server.should_exit = True
        thread.join()


def send(address: tuple[str, int], *parts: bytes) -> bytes:
    """The response to these bytes, until the server closes the connection."""
    with socket.create_connection(address) as connection:
        connection.settimeout(30)
        for part in parts:
            connection.sendall(part)
        return b"".join(iter(lambda: connection.recv(65_536), b""))


def read_problem(response: bytes) -> tuple[int, str]:
    head, _, body = response.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head
    assert b"connection: close" in head.lower()
    problem = json.loads(body)
    assert head.split()[1] == str(problem["status"]).encode()
    return problem["status"], problem["detail"]


@pytest.mark.parametrize("start", [b"GET /hea", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n", b"P"])
def test_late_headers_are_408(address: tuple[str, int], start: bytes) -> None:
    assert read_problem(send(address, start)) == (408, "the headers must arrive within 0.2 s")


def test_late_headers_of_a_second_request_are_408(address: tuple[str, int]) -> None:
    response = send(address, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /healthz HTTP/1.1\r\n")
    assert response.startswith(b"HTTP/1.1 200 OK")
    assert read_problem(response[response.index(b"HTTP/1.1 408") :]) == (408, "the headers must arrive within 0.2 s")


def test_a_connection_that_sends_nothing_is_closed(address: tuple[str, int]) -> None:
    assert send(address) == b""


def test_endless_headers_are_431(address: tuple[str, int]) -> None:
    with socket.create_connection(address) as connection, suppress(OSError):  # reset, or a broken pipe
        connection.settimeout(30)
        connection.sendall(b"GET /healthz HTTP/1.1\r\n")
        while True:
            connection.sendall(b"X-Padding: " + b"a" * 4_096 + b"\r\n")
    huge = b"GET /healthz HTTP/1.1\r\nX-Padding: " + b"a" * MAX_HEADER_BYTES
    assert read_problem(send(address, huge)) == (431, "the headers are too large: the limit is 65536 bytes")


def test_a_late_body_is_408_and_its_connection_is_closed(address: tuple[str, int]) -> None:
    json = b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n"
    head = b"POST /v1/retrieve HTTP/1.1\r\nHost: localhost\r\n" + json
    detail = "the request body must arrive within 0.2 s, plus 1 s for each 65536 bytes"
    assert read_problem(send(address, head, b'{"query": ')) == (408, detail)


def test_a_request_in_time_is_answered(address: tuple[str, int]) -> None:
    url = "http://{}:{}/v1/retrieve".format(*address)
    assert httpx2.post(url, json={"query": "key"}).json()["results"] == []


def test_a_large_body_gets_more_time() -> None:
    """The deadline moves by one second for each 64 KiB, so a body that arrives at this rate is never late."""
    received = []

    async def app(_scope: object, receive: object, _send: object) -> None:
        while (message := await receive())["more_body"]:  # type: ignore[operator]
            received.append(len(message["body"]))

    async def run() -> None:
        clock = 0.0

        async def receive() -> Message:
            nonlocal clock
            clock += 0.1
            await asyncio.sleep(0.1)
            return {"type": "http.request", "body": b"a" * 65_536, "more_body": clock < 0.35}

        await TransferDeadline(app, 0.15)({"type": "http"}, receive, None)  # type: ignore[arg-type]

    asyncio.run(run())
    assert received == [65_536] * 3


def test_a_client_that_does_not_read_is_given_up() -> None:
    async def app(_scope: object, _receive: object, send_part: object) -> None:
        await send_part({"type": "http.response.start"})  # type: ignore[operator]

    async def never(_message: Message) -> None:
        await asyncio.Event().wait()

    with pytest.raises(ClientDisconnect):
        asyncio.run(TransferDeadline(app, 0.01)({"type": "http"}, None, never))  # type: ignore[arg-type]
