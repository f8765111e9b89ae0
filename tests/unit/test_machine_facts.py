"""The facts about a machine that need no cluster: its ports and its environment."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from hosts import free_port

from jobs.machine_facts import hash_environment, probe_gateway_port, probe_http


class FixedAnswer(BaseHTTPRequestHandler):
    def __init__(self, body: bytes, *arguments: object) -> None:
        self._body = body
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", str(len(self._body)))
        self.end_headers()
        self.wfile.write(self._body)

    def log_message(self, *_: object) -> None:
        return


@contextmanager
def serve(body: bytes) -> Iterator[int]:
    with HTTPServer(("127.0.0.1", 0), partial(FixedAnswer, body)) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("body", "state"), [(b'{"status":"ok"}', "gateway"), (b"<html>", "other")])
def test_the_gateway_is_known_by_its_health(body: bytes, state: str) -> None:
    with serve(body) as port:
        assert probe_gateway_port(port) == state
        assert probe_http("127.0.0.1", port, "/metrics") == ""


def test_a_port_without_a_server_is_free() -> None:
    port = free_port()
    assert probe_gateway_port(port) == "free"
    assert "Connection refused" in probe_http("127.0.0.1", port, "/metrics")


def test_variables_are_compared_by_salted_hashes() -> None:
    environment = {"RAG_STORE__URL": "postgresql://me:hunter2@host/rag", "RAG_HOME": "/a", "PATH": "/bin"}
    hashes = hash_environment(environment, b"salt")
    assert list(hashes) == ["RAG_STORE__URL"]
    assert hashes == hash_environment(environment, b"salt")
    assert hashes != hash_environment(environment, b"another salt")
    assert "hunter2" not in str(hashes)
