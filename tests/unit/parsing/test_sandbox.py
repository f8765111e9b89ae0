"""The child process, with parsers that do what poisoned files bring parsers to do."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from unittest.mock import Mock

import poison
import psutil
import pytest
from waiting import wait_for_end

from rag_core.errors import DocumentError
from rag_core.parsing import sandbox as sandbox_module
from rag_core.parsing.document import parse
from rag_core.parsing.sandbox import Bounds, Sandbox

SMALL = Bounds(seconds=1.0, memory_mb=200, output_bytes=1_000_000)
TEXT = b"The gates are opened at spring tide.\n"


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    made = Sandbox(poison.treacherous, SMALL)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def no_child_is_left() -> Iterator[None]:
    before = set(psutil.Process().children(recursive=True))
    yield
    gc.collect()
    assert [each for each in psutil.Process().children(recursive=True) if each not in before] == []


def failure(sandbox: Sandbox, uri: str, body: bytes = TEXT) -> DocumentError:
    with pytest.raises(DocumentError) as caught:
        sandbox(uri, body)
    assert caught.value.stage == "parse"
    return caught.value


def child(sandbox: Sandbox) -> sandbox_module._Child:
    """This thread's."""
    return sandbox._children[threading.current_thread()]


def test_a_document_comes_back_as_it_would_without_the_sandbox(sandbox: Sandbox) -> None:
    body = b"---\ntags: [a, b]\nrank: 2\n---\n# Gates\n\nOpened at spring tide.\n\n## Keys\n\nRotated.\n"
    assert sandbox("file:///a.md", body) == parse("file:///a.md", body, False, 200.0, 20.0)


def test_one_child_reads_many_documents() -> None:
    made = Sandbox(poison.identity, SMALL)
    numbers = {made("file:///a.txt", b"").text for _ in range(20)}
    made.close()
    assert len(numbers) == 1
    assert numbers != {str(os.getpid())}


def test_a_child_is_replaced_after_so_many_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox_module, "DOCUMENTS_A_CHILD", 2)
    made = Sandbox(poison.identity, SMALL)
    numbers = [made("file:///a.txt", b"").text for _ in range(4)]
    made.close()
    assert numbers[0] == numbers[1] != numbers[2] == numbers[3]


@pytest.mark.parametrize(
    ("name", "reason", "retryable"),
    [
        ("spin", "took longer than 1 s", True),
        ("wait_in_c", "took longer than 1 s", True),
        ("fork_and_spin", "took longer than 1 s", True),
        ("hog", "needed more than 200 MB of memory", True),
        ("abort", "needed more than 200 MB of memory", True),
        ("crash", "the parser crashed (signal SIGSEGV)", False),
        ("leave", "the parser ended without an answer (exit status 3)", False),
        ("exit_politely", "the parser failed: SystemExit: enough", False),
        ("stumble", "the parser failed: KeyError: 'a bug'", False),
        ("write_much", "the parser failed: OSError: [Errno 27] File too large", False),
        ("open_many", "the parser failed: OSError: [Errno 24] Too many open files: '/dev/null'", False),
    ],
)
def test_what_a_parser_does_costs_its_document_and_no_other(
    sandbox: Sandbox, name: str, reason: str, retryable: bool
) -> None:
    assert sandbox("file:///before.txt", TEXT).text == TEXT.decode()
    began = time.monotonic()
    error = failure(sandbox, f"file:///{name}.txt")
    assert (error.reason, error.retryable, error.status) == (reason, retryable, "failed")
    assert time.monotonic() - began < 30
    assert sandbox("file:///after.txt", TEXT).text == TEXT.decode()
    assert poison.sleep(os.getpid()) not in [each.info["cmdline"] for each in psutil.process_iter(["cmdline"])]


def test_what_a_parser_refuses_is_refused_and_the_child_goes_on(sandbox: Sandbox) -> None:
    assert failure(sandbox, "file:///refuse.txt").status == "skipped"
    assert failure(sandbox, "file:///nothing.txt", b"").reason == "empty"
    assert child(sandbox).usable


def test_a_document_that_meets_a_dying_child_is_read_by_a_fresh_one(sandbox: Sandbox) -> None:
    sandbox("file:///a.txt", TEXT)
    os.kill(child(sandbox)._process.pid, signal.SIGKILL)
    assert sandbox("file:///b.txt", TEXT).text == TEXT.decode()


@contextmanager
def killed(when: Callable[[], bool], times: int, by: signal.Signals = signal.SIGKILL) -> Iterator[None]:
    """So many children, one after the other, each as soon as it is as far as that."""
    stop = threading.Event()

    def kill() -> None:
        seen = set[psutil.Process]()
        while len(seen) < times and not stop.is_set():
            for child in {each for each in psutil.Process().children() if parses(each)} - seen:
                if when():
                    child.send_signal(by)
                    seen.add(child)
            time.sleep(0.005)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def parses(process: psutil.Process) -> bool:
    try:
        return "sandbox_child" in "".join(process.cmdline())
    except psutil.Error:
        return False


def naps(sandbox: Sandbox) -> bool:
    return any(each._documents == 1 for each in list(sandbox._children.values()))


def starts() -> bool:
    return True


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM], ids=lambda by: by.name)
def test_a_document_whose_fresh_child_is_killed_once_is_read_by_another(sandbox: Sandbox, by: signal.Signals) -> None:
    with killed(partial(naps, sandbox), times=1, by=by):
        assert sandbox("file:///nap.txt", TEXT).text == TEXT.decode()
    assert child(sandbox)._documents == 1


def test_a_child_that_is_killed_before_it_has_started_is_replaced(sandbox: Sandbox) -> None:
    with killed(starts, times=1):
        assert sandbox("file:///a.txt", TEXT).text == TEXT.decode()


def test_a_document_whose_child_is_killed_twice_is_tried_again_at_the_next_sync(sandbox: Sandbox) -> None:
    with killed(partial(naps, sandbox), times=2):
        error = failure(sandbox, "file:///nap.txt")
    assert (error.reason, error.retryable) == ("the parser crashed (signal SIGKILL)", True)
    assert sandbox("file:///a.txt", TEXT).text == TEXT.decode()


def test_a_child_that_is_killed_twice_before_it_has_started_is_told_of(sandbox: Sandbox) -> None:
    with killed(starts, times=2):
        error = failure(sandbox, "file:///a.txt")
    assert (error.reason, error.retryable) == ("the parser could not be started: signal SIGKILL", True)


@pytest.mark.parametrize(("name", "starts"), [("crash", 2), ("abort", 1), ("hog", 1), ("leave", 1), ("spin", 1)])
def test_only_a_signal_gives_the_document_of_a_fresh_child_a_second_try(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, name: str, starts: int
) -> None:
    start = Mock(wraps=sandbox_module._started)
    monkeypatch.setattr(sandbox_module, "_started", start)
    failure(sandbox, f"file:///{name}.txt")
    assert start.call_count == starts


def test_a_document_that_is_larger_than_allowed_does_not_come_back() -> None:
    made = Sandbox(poison.boasting, SMALL)
    assert failure(made, "file:///a.txt", b"x" * 2000).reason == "output larger than 1 MB"
    assert len(made("file:///a.txt", b"x" * 500).text) == 500_000
    made.close()


def test_what_is_no_plain_value_does_not_come_back() -> None:
    made = Sandbox(poison.opaque, SMALL)
    assert failure(made, "file:///a.txt").reason == "the parser returned what is no document: poison.Opaque"
    made.close()


def test_large_bytes_go_in_and_out() -> None:
    made = Sandbox(partial(parse, detect_language=False, file_mb=200.0, text_mb=20.0))
    body = b"0123456789abcde\n" * 500_000
    assert made("file:///a.txt", body).text.encode() == body
    made.close()


def test_neither_secrets_nor_models_are_in_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAG_STORE__URL", "postgresql://root:secret@host/db")
    made = Sandbox(poison.environment, SMALL)
    document = made("file:///a.txt", b"")
    made.close()
    assert "RAG_STORE__URL" not in document.text.split()
    assert "PATH" in document.text.split()
    assert {"torch", "ray", "psycopg"}.isdisjoint(document.metadata["modules"])  # type: ignore[arg-type]


def test_a_parser_that_cannot_be_imported_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fleeting.py").write_text("def parse(uri, body): ...")
    monkeypatch.syspath_prepend(str(tmp_path))
    made = Sandbox(import_module("fleeting").parse, SMALL)
    (tmp_path / "fleeting.py").unlink()
    error = failure(made, "file:///a.txt")
    assert error.reason == "the parser could not be started: ModuleNotFoundError: No module named 'fleeting'"
    assert error.retryable


def test_the_child_goes_with_its_sandbox() -> None:
    made = Sandbox(poison.identity, SMALL)
    number = int(made("file:///a.txt", b"").text)
    assert psutil.pid_exists(number)
    del made
    gc.collect()
    assert not psutil.pid_exists(number)


def test_close_may_be_said_twice_and_is_not_the_end(sandbox: Sandbox) -> None:
    sandbox("file:///a.txt", TEXT)
    sandbox.close()
    sandbox.close()
    assert sandbox("file:///a.txt", TEXT).text == TEXT.decode()


def test_the_child_of_a_thread_that_has_ended_is_not_relied_on() -> None:
    made, found = Sandbox(poison.identity, SMALL), list[str]()
    thread = threading.Thread(target=lambda: found.append(made("file:///a.txt", b"").text))
    thread.start()
    thread.join()
    assert made("file:///a.txt", b"").text != found[0]
    made.close()


def test_each_thread_has_a_child_of_its_own() -> None:
    made, together = Sandbox(poison.identity, SMALL), threading.Barrier(2)

    def number(_: int) -> str:
        together.wait(30)
        return made("file:///a.txt", b"").text

    with ThreadPoolExecutor(2) as threads:
        assert len(set(threads.map(number, range(2)))) == 2


ORPHAN = """
import os, sys, signal
sys.path[:0] = {path!r}
import poison
from rag_core.parsing.sandbox import Sandbox
made = Sandbox(poison.treacherous)
made("file:///a.txt", b"text")
print(next(iter(made._children.values()))._process.pid, flush=True)
{end}
"""


@pytest.mark.parametrize(
    "end", ["os.kill(os.getpid(), signal.SIGKILL)", "os._exit(0)", "made('file:///spin.txt', b'')"]
)
def test_no_child_survives_its_parent(end: str) -> None:
    program = ORPHAN.format(path=sys.path, end=end)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        time.sleep(0.3)
        parent.kill()
    wait_for_end(child)
