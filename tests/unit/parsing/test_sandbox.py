"""The child process, with parsers that behave as poisoned files make parsers behave."""

import gc
import os
import pickle
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
from rag_core.parsing.sandbox import Sandbox, SandboxLimits
from rag_core.parsing.sandbox_child import _answer
from rag_core.types import Document

SMALL = SandboxLimits(seconds=1.0, memory_mb=200, output_bytes=1_000_000)
TEXT = b"The gates are opened at spring tide.\n"


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    sandbox = Sandbox(poison.parse_or_act, SMALL)
    yield sandbox
    sandbox.close()


@pytest.fixture(autouse=True)
def no_child_is_left() -> Iterator[None]:
    before = set(psutil.Process().children(recursive=True))
    yield
    assert [child for child in psutil.Process().children(recursive=True) if child not in before] == []


def failure(sandbox: Sandbox, uri: str, body: bytes = TEXT) -> DocumentError:
    with pytest.raises(DocumentError) as caught:
        sandbox(uri, body)
    assert caught.value.stage == "parse"
    return caught.value


def child(sandbox: Sandbox) -> sandbox_module._Child:
    """This thread's child."""
    return sandbox._children[threading.current_thread()]


def test_the_sandbox_does_not_change_a_document(sandbox: Sandbox) -> None:
    body = b"---\ntags: [a, b]\nrank: 2\n---\n# Gates\n\nOpened at spring tide.\n\n## Keys\n\nRotated.\n"
    assert sandbox("file:///a.md", body) == parse("file:///a.md", body, False, 200.0, 20.0)


def test_one_child_reads_many_documents() -> None:
    sandbox = Sandbox(poison.identity, SMALL)
    numbers = {sandbox("file:///a.txt", b"").text for _ in range(20)}
    sandbox.close()
    assert len(numbers) == 1
    assert numbers != {str(os.getpid())}


def test_a_child_is_replaced_after_so_many_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox_module, "MAX_DOCUMENTS_PER_CHILD", 2)
    sandbox = Sandbox(poison.identity, SMALL)
    numbers = [sandbox("file:///a.txt", b"").text for _ in range(4)]
    sandbox.close()
    assert numbers[0] == numbers[1] != numbers[2] == numbers[3]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "reason", "retryable"),
    [
        ("spin", "took longer than 1 s of CPU time", True),
        ("wait_in_c", "gave no answer within 2 s", True),
        ("fork_and_spin", "took longer than 1 s of CPU time", True),
        ("hog", "needed more than 200 MB of memory", True),
        ("abort", "needed more than 200 MB of memory", True),
        ("abort_silently", "needed more than 200 MB of memory", True),
        ("abort_with_reason", "the parser crashed (signal SIGABRT)", False),
        ("crash", "the parser crashed (signal SIGSEGV)", False),
        ("leave", "the parser ended without an answer (exit status 3)", False),
        ("exit_politely", "the parser failed: SystemExit: enough", False),
        ("stumble", "the parser failed: KeyError: 'a bug'", False),
        ("write_much", "the parser failed: OSError: [Errno 27] File too large", False),
        ("open_many", "the parser failed: OSError: [Errno 24] Too many open files: '/dev/null'", False),
    ],
)
def test_a_failing_parser_fails_its_document_and_no_other(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, name: str, reason: str, retryable: bool
) -> None:
    monkeypatch.setattr(sandbox_module, "WALL_FACTOR", 2 if name == "wait_in_c" else 30)
    assert sandbox("file:///before.txt", TEXT).text == TEXT.decode()
    began = time.monotonic()
    error = failure(sandbox, f"file:///{name}.txt")
    assert (error.reason, error.retryable, error.status) == (reason, retryable, "failed")
    assert time.monotonic() - began < 30
    assert sandbox("file:///after.txt", TEXT).text == TEXT.decode()
    assert poison.sleep(os.getpid()) not in [process.info["cmdline"] for process in psutil.process_iter(["cmdline"])]


def test_a_parsers_refusal_is_reported_and_the_child_continues(sandbox: Sandbox) -> None:
    assert failure(sandbox, "file:///refuse.txt").status == "skipped"
    assert failure(sandbox, "file:///nothing.txt", b"").reason == "empty"
    assert child(sandbox).is_usable


def test_a_document_that_meets_a_dying_child_is_read_by_a_fresh_one(sandbox: Sandbox) -> None:
    sandbox("file:///a.txt", TEXT)
    os.kill(child(sandbox)._process.pid, signal.SIGKILL)
    assert sandbox("file:///b.txt", TEXT).text == TEXT.decode()


@contextmanager
def kill_children(when: Callable[[], bool], times: int, by: signal.Signals = signal.SIGKILL) -> Iterator[None]:
    """Kills `times` children, one after another, each as soon as `when` is true."""
    stop = threading.Event()

    def kill() -> None:
        killed = set[psutil.Process]()
        while len(killed) < times and not stop.is_set():
            for child in {child for child in psutil.Process().children() if is_parser(child)} - killed:
                if when():
                    child.send_signal(by)
                    killed.add(child)
            time.sleep(0.005)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def is_parser(process: psutil.Process) -> bool:
    try:
        return "sandbox_child" in "".join(process.cmdline())
    except psutil.Error:
        return False


def is_parsing(sandbox: Sandbox) -> bool:
    return any(child._document_count == 1 for child in list(sandbox._children.values()))


def starts() -> bool:
    return True


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM], ids=lambda by: by.name)
def test_a_document_whose_fresh_child_is_killed_once_is_read_by_another(sandbox: Sandbox, by: signal.Signals) -> None:
    with kill_children(partial(is_parsing, sandbox), times=1, by=by):
        assert sandbox("file:///nap.txt", TEXT).text == TEXT.decode()
    assert child(sandbox)._document_count == 1


def test_a_child_that_is_killed_before_it_has_started_is_replaced(sandbox: Sandbox) -> None:
    with kill_children(starts, times=1):
        assert sandbox("file:///a.txt", TEXT).text == TEXT.decode()


@pytest.mark.slow
def test_a_document_whose_child_is_killed_twice_is_tried_again_at_the_next_sync(sandbox: Sandbox) -> None:
    with kill_children(partial(is_parsing, sandbox), times=2):
        error = failure(sandbox, "file:///nap.txt")
    assert (error.reason, error.retryable) == ("the parser crashed (signal SIGKILL)", True)
    assert sandbox("file:///a.txt", TEXT).text == TEXT.decode()


def test_a_child_that_is_killed_twice_before_it_has_started_is_reported(sandbox: Sandbox) -> None:
    with kill_children(starts, times=2):
        error = failure(sandbox, "file:///a.txt")
    assert (error.reason, error.retryable) == ("the parser could not be started: signal SIGKILL", True)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "starts"), [("crash", 2), ("abort", 1), ("hog", 1), ("leave", 1), ("spin", 1)])
def test_only_a_signal_gives_the_document_of_a_fresh_child_a_second_try(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, name: str, starts: int
) -> None:
    start = Mock(wraps=sandbox_module._start_process)
    monkeypatch.setattr(sandbox_module, "_start_process", start)
    failure(sandbox, f"file:///{name}.txt")
    assert start.call_count == starts


def test_a_document_above_the_output_limit_is_rejected() -> None:
    sandbox = Sandbox(poison.parse_to_huge_text, SMALL)
    assert failure(sandbox, "file:///a.txt", b"x" * 2000).reason == "output larger than 1 MB"
    assert len(sandbox("file:///a.txt", b"x" * 500).text) == 500_000
    sandbox.close()


def test_a_reply_that_is_not_a_document_is_rejected() -> None:
    sandbox = Sandbox(poison.opaque, SMALL)
    assert (
        failure(sandbox, "file:///a.txt").reason
        == "the parser returned something that is not a document: poison.Opaque"
    )
    sandbox.close()


def test_large_bytes_go_in_and_out() -> None:
    sandbox = Sandbox(partial(parse, detect_language=False, file_mb=200.0, text_mb=20.0))
    body = b"0123456789abcde\n" * 500_000
    assert sandbox("file:///a.txt", body).text.encode() == body
    sandbox.close()


def test_neither_secrets_nor_models_are_in_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAG_STORE__URL", "postgresql://root:secret@host/db")
    sandbox = Sandbox(poison.environment, SMALL)
    document = sandbox("file:///a.txt", b"")
    sandbox.close()
    assert "RAG_STORE__URL" not in document.text.split()
    assert "PATH" in document.text.split()
    assert {"torch", "ray", "psycopg"}.isdisjoint(document.metadata["modules"])  # type: ignore[arg-type]


def test_a_parser_that_cannot_be_imported_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fleeting.py").write_text("def parse(uri, body): ...")
    monkeypatch.syspath_prepend(str(tmp_path))
    sandbox = Sandbox(import_module("fleeting").parse, SMALL)
    (tmp_path / "fleeting.py").unlink()
    error = failure(sandbox, "file:///a.txt")
    assert error.reason == "the parser could not be started: ModuleNotFoundError: No module named 'fleeting'"
    assert error.retryable


def test_the_child_ends_with_its_sandbox() -> None:
    sandbox = Sandbox(poison.identity, SMALL)
    number = int(sandbox("file:///a.txt", b"").text)
    assert psutil.pid_exists(number)
    del sandbox
    gc.collect()
    assert not psutil.pid_exists(number)


def test_close_can_be_called_twice_and_the_sandbox_used_again(sandbox: Sandbox) -> None:
    sandbox("file:///a.txt", TEXT)
    sandbox.close()
    sandbox.close()
    assert sandbox("file:///a.txt", TEXT).text == TEXT.decode()


def test_the_child_of_a_thread_that_has_ended_is_not_reused() -> None:
    sandbox, texts = Sandbox(poison.identity, SMALL), list[str]()
    thread = threading.Thread(target=lambda: texts.append(sandbox("file:///a.txt", b"").text))
    thread.start()
    thread.join()
    assert sandbox("file:///a.txt", b"").text != texts[0]
    sandbox.close()


def test_each_thread_has_its_own_child() -> None:
    sandbox, barrier = Sandbox(poison.identity, SMALL), threading.Barrier(2)

    def number(_: int) -> str:
        barrier.wait(30)
        return sandbox("file:///a.txt", b"").text

    with ThreadPoolExecutor(2) as threads:
        assert len(set(threads.map(number, range(2)))) == 2


ORPHAN = """
import os, sys, signal
sys.path[:0] = {path!r}
import poison
from rag_core.parsing.sandbox import Sandbox
sandbox = Sandbox(poison.parse_or_act)
sandbox("file:///a.txt", b"text")
print(next(iter(sandbox._children.values()))._process.pid, flush=True)
{end}
"""


@pytest.mark.parametrize(
    "end", ["os.kill(os.getpid(), signal.SIGKILL)", "os._exit(0)", "sandbox('file:///spin.txt', b'')"]
)
def test_no_child_survives_its_parent(end: str) -> None:
    program = ORPHAN.format(path=sys.path, end=end)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        time.sleep(0.3)
        parent.kill()
    wait_for_end(child)


def test_the_lines_of_an_error_become_one() -> None:
    def raise_lines(uri: str, body: bytes) -> Document:
        raise ValueError(f"\n{uri}:\n  no header")

    _, (_, reason, *_) = pickle.loads(_answer(raise_lines, "a", b"", 1000))  # noqa: S301 - this test pickled it
    assert reason == "the parser failed: ValueError: a: no header"
