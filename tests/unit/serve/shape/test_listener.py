"""The socket that outlives the replicas which listen on it, and the end of a gateway that does not come back."""

import inspect
import os
import socket
import stat
from pathlib import Path

import pytest
import quiet_serve  # noqa: F401
from ray.serve._private import replica as serve_replica
from ray.serve._private.http_util import start_asgi_http_server

from rag_core.errors import ClusterError
from serve.shape import local, replica_server
from serve.shape.listener import LISTENER_VARIABLE, borrow_listener, lend_listener


def test_a_connection_waits_while_no_replica_listens_and_the_next_one_accepts_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, lend_listener(listener) as variables:
        path = variables[LISTENER_VARIABLE]
        borrow_listener(path).close()  # a replica that died
        with socket.create_connection(listener.getsockname()) as client, borrow_listener(path) as replica:
            client.sendall(b"still here")
            replica.setblocking(True)
            accepted, _ = replica.accept()
            with accepted:
                assert accepted.recv(100) == b"still here"


def test_only_this_user_can_borrow_the_socket_and_only_while_it_is_lent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, lend_listener(listener) as variables:
        folder = Path(variables[LISTENER_VARIABLE]).parent
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    assert not folder.exists()


def test_a_replica_starts_its_server_on_the_lent_socket_only_if_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_replica, "start_asgi_http_server", start_asgi_http_server)
    monkeypatch.delenv(LISTENER_VARIABLE, raising=False)
    replica_server.use_lent_listener(1.0)
    assert serve_replica.start_asgi_http_server is start_asgi_http_server
    monkeypatch.setenv(LISTENER_VARIABLE, "/nowhere")
    replica_server.use_lent_listener(1.0)
    ours = inspect.signature(serve_replica.start_asgi_http_server).parameters
    assert [parameter.kind for parameter in ours.values()] == [
        parameter.kind for parameter in inspect.signature(start_asgi_http_server).parameters.values()
    ]
    assert {"event_loop", "enable_so_reuseport"} <= set(ours)


def test_a_gateway_that_stays_away_is_an_error_after_three_times_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    now, responses = 0.0, [True, False, True]

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(local.time, "sleep", sleep)
    monkeypatch.setattr(local.time, "monotonic", lambda: now)
    monkeypatch.setattr(local, "_is_responding", lambda _url: responses.pop(0) if responses else False)
    with pytest.raises(ClusterError, match="http://gateway has not responded for 90 s, and Serve did not replace it"):
        local.watch("http://gateway", 30.0, lambda: None)
    assert now == 15.0 + 90.0 + local.WATCH_SECONDS
