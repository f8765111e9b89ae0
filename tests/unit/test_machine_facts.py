"""The facts about a machine that need no cluster: its ports and its environment."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from benchmarks.free_port import find_free_port
from jobs import machine_facts
from jobs.machine_facts import Gpus, hash_environment, probe_gateway_port, probe_http, read_gpus


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
    port = find_free_port()
    assert probe_gateway_port(port) == "free"
    assert "Connection refused" in probe_http("127.0.0.1", port, "/metrics")


def test_variables_are_compared_by_salted_hashes() -> None:
    environment = {"RAG_STORE__URL": "postgresql://me:hunter2@host/rag", "RAG_HOME": "/a", "PATH": "/bin"}
    hashes = hash_environment(environment, b"salt")
    assert list(hashes) == ["RAG_STORE__URL"]
    assert hashes == hash_environment(environment, b"salt")
    assert hashes != hash_environment(environment, b"another salt")
    assert "hunter2" not in str(hashes)


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in the place of nvidia-smi that reports two GPUs, on a machine whose Python has no vLLM."""
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA H100, 81559 MiB'\necho 'NVIDIA H100, 81559 MiB'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(machine_facts, "find_version", lambda _: "")
    return program


def test_gpus_are_counted_without_the_variable_by_which_ray_hides_them(
    driver: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert driver.exists()
    monkeypatch.setattr(
        machine_facts, "COUNT_GPUS", "import os; print(0 if 'CUDA_VISIBLE_DEVICES' in os.environ else 2)"
    )
    assert read_gpus() == Gpus(names=("NVIDIA H100, 81559 MiB",) * 2, visible=2)


def test_packages_that_do_not_work_are_named_with_their_error(driver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_facts, "COUNT_GPUS", "raise RuntimeError('libcudart is missing')")
    monkeypatch.setattr(machine_facts, "IMPORT_VLLM", "import no_such_module")
    monkeypatch.setattr(machine_facts, "find_version", lambda _: "0.20.1")
    gpus = read_gpus()
    assert (gpus.visible, gpus.vllm) == (-1, "")
    torch, vllm = gpus.errors
    assert torch == "torch: RuntimeError: libcudart is missing"
    assert vllm == "vllm: ModuleNotFoundError: No module named 'no_such_module'"
    driver.write_text("#!/bin/sh\necho 'no devices were found'; exit 6\n")
    assert read_gpus() == Gpus(visible=-1, errors=("nvidia-smi: no devices were found",))


def test_a_machine_without_the_driver_has_no_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert read_gpus() == Gpus()
