"""A gateway that is killed: `rag serve` answers again on the same port, or ends with an error."""

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import httpx2
import psutil
import pytest
from hosts import RAG, SETTINGS, Host, with_interrupts

from benchmarks.free_port import find_free_port

pytestmark = [pytest.mark.chaos, pytest.mark.postgres, pytest.mark.ray, pytest.mark.timeout(300)]

QUESTION = {"question": "Which gate has the key of the tide lamp?"}
KILLS, CLIENTS = 3, 8
PATIENCE = 90.0
"""Seconds, after which a process or an answer counts as missing."""


@contextmanager
def start_gateway(host: Host) -> Iterator["subprocess.Popen[str]"]:
    environment = {**os.environ, "RAG_STORE__URL": host.store.dsn, "RAG_HOME": str(host.home)}
    command = with_interrupts([*RAG, "serve", "--port", str(find_free_port()), "--json", *SETTINGS])
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                process.wait(60)


def read_url(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return str(json.loads(process.stdout.readline())["url"])


def await_child(process: "subprocess.Popen[str]", words: str) -> psutil.Process:
    """The first descendant with these words in its command, which can be still to come."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        for child in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.Error):
                if words in " ".join(child.cmdline()):
                    return child
        time.sleep(0.02)
    pytest.fail(f"no process of {words}")


def ask(url: str) -> httpx2.Response:
    return httpx2.post(f"{url}/v1/answer", json=QUESTION, timeout=PATIENCE)


def test_a_killed_gateway_answers_again_every_time_and_new_connections_wait_for_it(host: Host) -> None:
    assert host.ingest("inline").wait(120) == 0
    with start_gateway(host) as process:
        url = read_url(process)
        stop, statuses = threading.Event(), set[int]()

        def ask_until_stopped() -> None:
            while not stop.is_set():
                with suppress(httpx2.RemoteProtocolError, httpx2.ReadError):  # asked just before the kill
                    statuses.add(ask(url).status_code)

        clients = [threading.Thread(target=ask_until_stopped) for _ in range(CLIENTS)]
        for client in clients:
            client.start()
        for _ in range(KILLS):
            replica = await_child(process, "ServeReplica:rag:Gateway")
            replica.kill()
            replica.wait()
            assert ask(url).status_code == 200
        stop.set()
        for client in clients:
            client.join()
        assert statuses == {200}  # and no connection was refused: ConnectError is not suppressed
        assert process.poll() is None


def test_a_crash_while_the_gateway_starts_only_delays_it(host: Host) -> None:
    assert host.ingest("inline").wait(120) == 0
    with start_gateway(host) as process:
        await_child(process, "ServeReplica:rag:Gateway").kill()
        assert ask(read_url(process)).status_code == 200


def test_a_gateway_that_cannot_come_back_ends_the_command_with_an_error(host: Host) -> None:
    assert host.ingest("inline").wait(120) == 0
    with start_gateway(host) as process:
        read_url(process)
        await_child(process, "raylet/raylet").kill()  # without it Ray starts no process
        await_child(process, "ServeReplica:rag:Gateway").kill()
        assert process.wait(200) == 3
