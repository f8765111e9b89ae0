"""Untrusted bytes are parsed in a child process with limits on time, memory, files and output.

The child is a fresh start of the interpreter, not a fork. So it works the same in a script, a notebook and a cluster's
worker, and holds neither their models nor their secrets. It parses many documents.

A document fails only for what it does itself. A child that dies of a signal may have been killed by an operator, or by
a machine out of memory. A child that ends otherwise may have suffered from the documents before. In both cases a fresh
child parses the document again, and if that one ends too, the document fails. A document that runs out of time fails at
once. So a document costs at most two starts and twice its seconds.

The limit on time counts the CPU time of the child, so that no document fails because the machine is busy. A child that
only waits is ended after WALL_FACTOR times the limit.
"""

import io
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from typing import IO, Any, TypeAlias
from weakref import WeakKeyDictionary

from rag_core import types
from rag_core.errors import DocumentError
from rag_core.parsing.sandbox_child import (
    DOCUMENT,
    MEGABYTE,
    OUT_OF_MEMORY,
    REPLY,
    REQUEST,
    Parse,
    output_too_large,
    scratch_prefix,
)
from rag_core.types import Document

MAX_DOCUMENTS_PER_CHILD = 5_000
START_TIMEOUT = 12.0
WALL_FACTOR = 10
"""The limit on the wall time of a document, in limits on its CPU time."""
_MIN_WAIT = 0.01
"""Seconds between two measurements of the child's CPU time."""

_BOOT = """\
import sys
sys.path[:] = sys.argv[2:]
from rag_core.parsing.sandbox_child import serve
serve(int(sys.argv[1]))"""
# The other variables can hold a key or the password of the store.
_ENVIRONMENT = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "TZ",
    "XDG_CACHE_HOME",
    "LD_LIBRARY_PATH",
    "TESSDATA_PREFIX",
)
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
_OUT_OF_MEMORY_MESSAGES = (b"memory allocation of", b"bad_alloc", b"MemoryError")
_UNPICKLING_ERRORS = (pickle.UnpicklingError, EOFError, ValueError, TypeError, AttributeError, IndexError, KeyError)

ParserInput: TypeAlias = tuple[str, bytes]
"""A uri and a body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLimits:
    """The limits for one document. `seconds` are CPU time; `memory_mb` is in addition to what the libraries take."""

    seconds: float = 30.0
    memory_mb: float = 1024.0
    output_bytes: int = 80 * MEGABYTE


DEFAULT_LIMITS = SandboxLimits()


class Sandbox:
    """Runs `parse` in a child process. `parse` must be picklable, and importable in the child.

    Each thread has its own child. It starts with the thread's first document. It ends after it has been idle for a
    while, and at the latest with its thread or this object.
    """

    def __init__(
        self, parse: Parse, limits: SandboxLimits = DEFAULT_LIMITS, samples: Sequence[ParserInput] = ()
    ) -> None:
        """`samples`, harmless uris and bodies, are parsed before any limit applies."""
        self._parse, self._limits, self._samples = parse, limits, samples
        self._children: WeakKeyDictionary[threading.Thread, _Child] = WeakKeyDictionary()

    def __call__(self, uri: str, body: bytes) -> Document:
        """Raises the DocumentError of `parse`, or one for what went wrong in the child."""
        try:
            return self._child().parse(uri, body)
        except _ChildEndedError as ended:
            if not ended.can_be_retried:
                raise ended.failure from None
        try:
            return self._child().parse(uri, body)
        except _ChildEndedError as ended:
            raise ended.failure from None

    def close(self) -> None:
        """Ends this thread's child."""
        child = self._children.pop(threading.current_thread(), None)
        if child is not None:
            child.end()

    def _child(self) -> "_Child":
        """This thread's child, started if needed."""
        child = self._children.get(threading.current_thread())
        if child is None or not child.is_usable:
            self.close()
            child = self._children[threading.current_thread()] = _Child(self._parse, self._limits, self._samples)
        return child


class _ChildEndedError(Exception):
    """The child ended before it answered. `failure` is the document's error unless another child can parse it."""

    def __init__(self, can_be_retried: bool, failure: DocumentError) -> None:
        super().__init__(can_be_retried, failure)
        self.can_be_retried, self.failure = can_be_retried, failure


class _Child:
    def __init__(self, parse: Parse, limits: SandboxLimits, samples: Sequence[ParserInput]) -> None:
        self._limits, self._document_count, self._errors_start = limits, 0, 0
        settings = pickle.dumps((parse, samples, limits.seconds, limits.memory_mb, limits.output_bytes))
        self._socket, child_socket = socket.socketpair()
        self._stderr: IO[bytes] = TemporaryFile()  # noqa: SIM115 - `end` closes it
        try:
            self._process = _start_process(child_socket, self._stderr)
        except OSError as error:
            self._socket.close()
            self._stderr.close()
            raise _start_error(str(error)) from error
        finally:
            child_socket.close()
        self.end = weakref.finalize(self, _end_process, self._process, self._socket, self._stderr)
        self._send_settings(settings)

    @property
    def is_usable(self) -> bool:
        return bool(self.end.alive) and self._document_count < MAX_DOCUMENTS_PER_CHILD

    def parse(self, uri: str, body: bytes) -> Document:
        self._document_count += 1
        self._errors_start = os.fstat(self._stderr.fileno()).st_size
        name = uri.encode("utf-8", "surrogatepass")
        try:
            reply = self._request(REQUEST.pack(len(name), len(body)) + name, body, seconds=self._limits.seconds)
            kind, content = _DocumentUnpickler(io.BytesIO(reply)).load()
        except TimeoutError:
            self.end()
            reason = f"gave no answer within {WALL_FACTOR * self._limits.seconds:g} s"
            raise DocumentError("parse", reason, True) from None
        except OSError:
            raise self._explain_exit() from None
        except _UNPICKLING_ERRORS as error:
            self.end()
            raise DocumentError("parse", f"the parser returned something that is not a document: {error}") from None
        except BaseException:
            self.end()  # it could still answer, and its answer would be taken for the next document's
            raise
        if kind == OUT_OF_MEMORY:
            self.end()
            raise _ChildEndedError(self._document_count > 1, _memory_error(self._limits))
        if kind == DOCUMENT:
            return content  # type: ignore[no-any-return]
        raise DocumentError(*content)

    def _send_settings(self, settings: bytes) -> None:
        try:
            self._request(REPLY.pack(len(settings)) + settings, seconds=START_TIMEOUT)
        except OSError:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(5)  # it closes its socket before it writes its error
            killed_by = _signal_name(self._process.returncode or 0)
            last_line = self._read_last_errors().decode("utf-8", "replace").strip().splitlines()[-1:]
            self.end()
            raise _ChildEndedError(bool(killed_by), _start_error(*last_line, killed_by)) from None
        except BaseException:
            self.end()
            raise

    def _request(self, *parts: bytes, seconds: float) -> bytearray:
        """The child's reply.

        `seconds` limit the CPU time of the child, and WALL_FACTOR times as many the wall time. Raises _ChildEndedError
        or TimeoutError after them, and another OSError if the child has ended.
        """
        deadline = time.monotonic() + WALL_FACTOR * seconds
        cpu_limit = self._measure_cpu() + seconds
        for part in parts:
            self._socket.settimeout(_seconds_left(deadline))
            self._socket.sendall(part)
        self._wait_for_reply(cpu_limit, deadline)
        (size,) = REPLY.unpack(self._receive(REPLY.size, deadline))
        if size > self._limits.output_bytes:
            self.end()
            raise DocumentError("parse", output_too_large(self._limits.output_bytes))
        return self._receive(size, deadline)

    def _wait_for_reply(self, cpu_limit: float, deadline: float) -> None:
        while time.monotonic() < deadline:
            cpu_left = cpu_limit - self._measure_cpu()
            if cpu_left <= 0:
                raise _ChildEndedError(False, _timeout_error(self._limits))
            self._socket.settimeout(min(max(cpu_left, _MIN_WAIT), _seconds_left(deadline)))
            with suppress(TimeoutError):
                self._socket.recv(1, socket.MSG_PEEK)
                return

    def _measure_cpu(self) -> float:
        """The CPU seconds that the child has used; seconds of wall time on systems that do not report them."""
        try:
            # the id of a process's CPU clock, as Linux forms it (clock_getcpuclockid)
            return time.clock_gettime(~self._process.pid << 3 | 2)
        except OSError:
            return time.monotonic()

    def _receive(self, size: int, deadline: float) -> bytearray:
        content = bytearray(size)
        remaining = memoryview(content)
        while remaining:
            self._socket.settimeout(_seconds_left(deadline))
            received_bytes = self._socket.recv_into(remaining)
            if not received_bytes:
                raise ConnectionResetError
            remaining = remaining[received_bytes:]
        return content

    def _explain_exit(self) -> _ChildEndedError:
        """Ends a child that has closed its socket. Its exit status was set before and stays the same."""
        errors = self._read_last_errors()
        self.end()
        code, had_other_documents = self._process.returncode, self._document_count > 1
        if code == -signal.SIGXCPU:
            return _ChildEndedError(False, _timeout_error(self._limits))
        # PDFium aborts without a message if it gets no memory; the C library writes why it aborts
        is_silent_abort = code == -signal.SIGABRT and not errors
        if is_silent_abort or any(message in errors for message in _OUT_OF_MEMORY_MESSAGES):
            return _ChildEndedError(had_other_documents, _memory_error(self._limits))
        if code >= 0:
            reason = f"the parser ended without an answer (exit status {code})"
            return _ChildEndedError(had_other_documents, DocumentError("parse", reason))
        # only a machine out of memory kills it twice: the next sync may find enough memory
        crash = DocumentError("parse", f"the parser crashed ({_signal_name(code)})", code == -signal.SIGKILL)
        return _ChildEndedError(True, crash)

    def _read_last_errors(self) -> bytes:
        """The last 2,000 bytes that the child wrote to its standard error since it began with this document."""
        self._stderr.seek(max(self._errors_start, os.fstat(self._stderr.fileno()).st_size - 2000))
        return self._stderr.read()


class _DocumentUnpickler(pickle.Unpickler):
    """Loads no class but the dataclasses of `rag_core.types`: a reply from a hijacked child must not run code."""

    def find_class(self, module: str, name: str) -> Any:
        cls = getattr(types, name, None) if module == types.__name__ else None
        if not is_dataclass(cls):
            raise pickle.UnpicklingError(f"{module}.{name}")
        return cls


def _start_process(child_socket: socket.socket, stderr: IO[bytes]) -> "subprocess.Popen[bytes]":
    command: Sequence[str] = (sys.executable, "-I", "-c", _BOOT, str(child_socket.fileno()), *sys.path)
    return subprocess.Popen(  # noqa: S603 - this interpreter
        command,
        pass_fds=(child_socket.fileno(),),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ} | _ONE_THREAD,
        start_new_session=True,
    )


def _end_process(process: "subprocess.Popen[bytes]", parent_socket: socket.socket, stderr: IO[bytes]) -> None:
    """Kills the child with all its descendants, including those in other sessions, and removes its scratch folders.

    They are killed before the child is waited for: until then, nobody else can get their process ids.
    """
    if process.returncode is None:
        children: dict[int, list[int]] = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):  # other systems than Linux have no such files
            with suppress(OSError, ValueError):
                id, _, fields = stat.read_text("utf-8", "replace").partition(" ")
                children.setdefault(int(fields.rpartition(")")[2].split()[1]), []).append(int(id))
        family = [process.pid]
        for member in family:
            family += children.get(member, [])
        for kill, member in [(os.killpg, process.pid), *((os.kill, member) for member in family[1:])]:
            with suppress(ProcessLookupError, PermissionError):
                kill(member, signal.SIGKILL)
        process.wait()
    for folder in Path(gettempdir()).glob(f"{scratch_prefix(process.pid)}*"):
        shutil.rmtree(folder, ignore_errors=True)
    parent_socket.close()
    stderr.close()


def _seconds_left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.001)


def _timeout_error(limits: SandboxLimits) -> DocumentError:
    return DocumentError("parse", f"took longer than {limits.seconds:g} s of CPU time", True)


def _memory_error(limits: SandboxLimits) -> DocumentError:
    return DocumentError("parse", f"needed more than {limits.memory_mb:g} MB of memory", True)


def _signal_name(code: int) -> str:
    """The signal that ended a process; empty for a process that exited or still runs."""
    return f"signal {signal.Signals(-code).name}" if code < 0 else ""


def _start_error(*reasons: str) -> DocumentError:
    return DocumentError("parse", ": ".join(filter(None, ("the parser could not be started", *reasons))), True)
