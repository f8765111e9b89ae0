"""The header X-Request-ID under the middleware of Ray Serve, which decodes it and adds it to each response."""

import asyncio

import pytest
import quiet_serve  # noqa: F401
from fakes.serving import scripted_graph
from ray.serve._private.http_util import _apply_middlewares
from starlette.types import Message, Receive, Scope, Send

from serve.gateway import build_fastapi
from serve.http.request_ids import serve_middlewares
from serve.profiles import ServedProfiles


def exchange(headers: list[tuple[bytes, bytes]], path: str = "/healthz") -> tuple[int, dict[str, list[bytes]]]:
    """The status, and the values of each header of the response."""
    app = build_fastapi(ServedProfiles(scripted_graph()))

    async def decode_headers(scope: Scope, receive: Receive, send: Send) -> None:
        for name, value in scope["headers"]:  # as a replica of Serve does
            name.decode()
            if name.startswith((b"x-request", b"x-session", b"serve")):
                value.decode()
        await app(scope, receive, send)

    sent: list[Message] = []

    async def run() -> None:
        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)

        scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(b"host", b"localhost"), *headers],
            "server": ("127.0.0.1", 80),
            "client": ("127.0.0.1", 9),
            "state": {},
        }
        await _apply_middlewares(decode_headers, serve_middlewares())(scope, receive, send)

    asyncio.run(run())
    values: dict[str, list[bytes]] = {}
    for name, value in sent[0]["headers"]:
        values.setdefault(name.decode().lower(), []).append(value)
    return sent[0]["status"], values


def test_a_valid_id_is_sent_back_once() -> None:
    status, headers = exchange([(b"x-request-id", b"mine")])
    assert (status, headers["x-request-id"]) == (200, [b"mine"])


@pytest.mark.parametrize(
    "value",
    [
        *(bytes([byte]) * 3 for byte in range(128, 256, 9)),
        b"\xff\xfe",
        b"a\xc3(",
        "ä".encode(),
        b"a\tb",
        b"x" * 201,
        b"",
    ],
)
def test_an_id_of_any_bytes_is_replaced_by_one_new_id(value: bytes) -> None:
    for name in (b"x-request-id", b"x-correlation-id"):
        status, headers = exchange([(name, value)])
        assert (status, len(headers["x-request-id"]), len(headers["x-correlation-id"])) == (200, 1, 1)
        assert len(headers["x-request-id"][0]) == 36
        assert headers["x-request-id"] != [value]


def test_the_first_of_several_ids_counts() -> None:
    _, headers = exchange([(b"x-request-id", b"one"), (b"x-request-id", b"two")])
    assert headers["x-request-id"] == [b"one"]


@pytest.mark.parametrize("name", [b"x-session-id", b"serve_multiplexed_model_id", b"x-request-timeout-seconds"])
def test_other_headers_that_serve_decodes_are_removed_if_they_are_not_ascii(name: bytes) -> None:
    assert exchange([(name, b"\xff")])[0] == 200
