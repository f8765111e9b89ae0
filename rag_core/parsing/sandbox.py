"""Untrusted bytes are parsed in a child process with limits on time, memory, files and output.

The child is a clean start of the interpreter, not a fork: it works the same in a script, a notebook and a cluster's
worker, and holds neither their models nor their secrets. It reads many documents.

A document is blamed only for what it does itself. A child that dies of a signal may have met an operator, or a machine
out of memory; one that ends otherwise may have suffered from the documents before. In both cases a fresh child reads
the document once more, and what ends that one, too, is the document. Running out of time is its own doing at once. So a
document costs at most two starts and twice its seconds.
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
    refusal,
    scratch_prefix,
    too_large,
)
from rag_core.types import Document

DOCUMENTS_A_CHILD = 5_000
START_SECONDS = 120.0

_BOOT = """\
import sys
sys.path[:] = sys.argv[2:]
from rag_core.parsing.sandbox_child import serve
serve(int(sys.argv[1]))"""
# Not the rest: it may hold a password of the store's, or a key.
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
_NO_MEMORY = (b"memory allocation of", b"bad_alloc", b"MemoryError")
_UNREADABLE = (pickle.UnpicklingError, EOFError, ValueError, TypeError, AttributeError, IndexError, KeyError)

Sample: TypeAlias = tuple[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What one document may cost. Memory is what the parser takes beyond what its libraries take."""

    seconds: float = 30.0
    memory_mb: float = 1024.0
    output_bytes: int = 80 * MEGABYTE


DEFAULT_BOUNDS = Bounds()


class Sandbox:
    """`parse`, elsewhere: it must be picklable, and importable where it is unpickled. Each thread has a child of its
    own, which starts when the first document comes, goes when it has had none for a while, and at the latest with its
    thread or this object.
    """

    def __init__(self, parse: Parse, bounds: Bounds = DEFAULT_BOUNDS, samples: Sequence[Sample] = ()) -> None:
        """`samples`, harmless uris and bodies, are parsed before any limit holds."""
        self._parse, self._bounds, self._samples = parse, bounds, samples
        self._children: WeakKeyDictionary[threading.Thread, _Child] = WeakKeyDictionary()

    def __call__(self, uri: str, body: bytes) -> Document:
        """DocumentError as `parse` raises it, or with what went wrong around it."""
        try:
            return self._ready().document(uri, body)
        except _EndedError as ended:
            if not ended.perhaps_by_accident:
                raise ended.blame from None
        try:
            return self._ready().document(uri, body)
        except _EndedError as ended:
            raise ended.blame from None

    def close(self) -> None:
        """Ends this thread's child."""
        child = self._children.pop(threading.current_thread(), None)
        if child is not None:
            child.end()

    def _ready(self) -> "_Child":
        child = self._children.get(threading.current_thread())
        if child is None or not child.usable:
            self.close()
            child = self._children[threading.current_thread()] = _Child(self._parse, self._bounds, self._samples)
        return child


class _EndedError(Exception):
    """The child is no more. `blame` is for the document that it did not answer, if that is why."""

    def __init__(self, perhaps_by_accident: bool, blame: DocumentError) -> None:
        super().__init__(perhaps_by_accident, blame)
        self.perhaps_by_accident, self.blame = perhaps_by_accident, blame


class _Child:
    def __init__(self, parse: Parse, bounds: Bounds, samples: Sequence[Sample]) -> None:
        self._bounds, self._documents = bounds, 0
        settings = pickle.dumps((parse, samples, bounds.seconds, bounds.memory_mb, bounds.output_bytes))
        self._socket, theirs = socket.socketpair()
        self._errors: IO[bytes] = TemporaryFile()  # noqa: SIM115 - `end` closes it
        try:
            self._process = _started(theirs, self._errors)
        except OSError as error:
            self._socket.close()
            self._errors.close()
            raise _unstartable(str(error)) from error
        finally:
            theirs.close()
        self.end = weakref.finalize(self, _end, self._process, self._socket, self._errors)
        self._set_up(settings)

    @property
    def usable(self) -> bool:
        return bool(self.end.alive) and self._documents < DOCUMENTS_A_CHILD

    def document(self, uri: str, body: bytes) -> Document:
        self._documents += 1
        name = uri.encode("utf-8", "surrogatepass")
        try:
            reply = self._asked(REQUEST.pack(len(name), len(body)) + name, body, seconds=self._bounds.seconds)
            kind, content = _Plain(io.BytesIO(reply)).load()
        except TimeoutError:
            self.end()
            raise _late(self._bounds) from None
        except OSError:
            raise self._autopsy() from None
        except _UNREADABLE as error:
            self.end()
            raise DocumentError(*refusal(f"the parser returned what is no document: {error}")) from None
        except BaseException:
            self.end()  # it may still answer, and its answer would be taken for the next document's
            raise
        if kind == OUT_OF_MEMORY:
            self.end()
            raise _EndedError(self._documents > 1, _greedy(self._bounds))
        if kind == DOCUMENT:
            return content  # type: ignore[no-any-return]
        raise DocumentError(*content)

    def _set_up(self, settings: bytes) -> None:
        try:
            self._asked(REPLY.pack(len(settings)) + settings, seconds=START_SECONDS)
        except OSError:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(5)  # it closes its end before it says why
            killed = _signal(self._process.returncode or 0)
            said = self._last_words().decode("utf-8", "replace").strip().splitlines()[-1:]
            self.end()
            raise _EndedError(bool(killed), _unstartable(*said, killed)) from None
        except BaseException:
            self.end()
            raise

    def _asked(self, *parts: bytes, seconds: float) -> bytearray:
        """TimeoutError, or another OSError where the child has gone."""
        deadline = time.monotonic() + seconds
        for part in parts:
            self._socket.settimeout(_left(deadline))
            self._socket.sendall(part)
        (size,) = REPLY.unpack(self._received(REPLY.size, deadline))
        if size > self._bounds.output_bytes:
            self.end()
            raise DocumentError(*refusal(too_large(self._bounds.output_bytes)))
        return self._received(size, deadline)

    def _received(self, size: int, deadline: float) -> bytearray:
        content = bytearray(size)
        rest = memoryview(content)
        while rest:
            self._socket.settimeout(_left(deadline))
            received = self._socket.recv_into(rest)
            if not received:
                raise ConnectionResetError
            rest = rest[received:]
        return content

    def _autopsy(self) -> _EndedError:
        """Of a child that has closed its end: its exit status was set before, so ending it does not change that."""
        words = self._last_words()
        self.end()
        code, suffered = self._process.returncode, self._documents > 1
        if code == -signal.SIGXCPU:
            return _EndedError(False, _late(self._bounds))
        if any(sign in words for sign in _NO_MEMORY):
            return _EndedError(suffered, _greedy(self._bounds))
        if code >= 0:
            return _EndedError(suffered, _crashed(f"the parser ended without an answer (exit status {code})"))
        # nobody but the machine, out of memory, kills it twice: another time there may be enough
        return _EndedError(True, _crashed(f"the parser crashed ({_signal(code)})", retryable=code == -signal.SIGKILL))

    def _last_words(self) -> bytes:
        self._errors.seek(max(0, os.fstat(self._errors.fileno()).st_size - 2000))
        return self._errors.read()


class _Plain(pickle.Unpickler):
    """Knows no class but the values of `rag_core.types`: a reply from a child that was broken into runs no code."""

    def find_class(self, module: str, name: str) -> Any:
        found = getattr(types, name, None) if module == types.__name__ else None
        if not is_dataclass(found):
            raise pickle.UnpicklingError(f"{module}.{name}")
        return found


def _started(theirs: socket.socket, errors: IO[bytes]) -> "subprocess.Popen[bytes]":
    command: Sequence[str] = (sys.executable, "-I", "-c", _BOOT, str(theirs.fileno()), *sys.path)
    return subprocess.Popen(  # noqa: S603 - this interpreter
        command,
        pass_fds=(theirs.fileno(),),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ} | _ONE_THREAD,
        start_new_session=True,
    )


def _end(process: "subprocess.Popen[bytes]", parent: socket.socket, errors: IO[bytes]) -> None:
    """With all that it has started, also in sessions of their own, and the folders that it could not remove. Before it
    is waited for: until then the numbers are theirs."""
    if process.returncode is None:
        for kill, number in [(os.killpg, process.pid), *((os.kill, each) for each in _descendants(process.pid))]:
            with suppress(ProcessLookupError, PermissionError):
                kill(number, signal.SIGKILL)
        process.wait()
    for folder in Path(gettempdir()).glob(f"{scratch_prefix(process.pid)}*"):
        shutil.rmtree(folder, ignore_errors=True)
    parent.close()
    errors.close()


def _descendants(process: int) -> list[int]:
    """Linux tells them; elsewhere there are none."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            number, _, rest = stat.read_text("utf-8", "replace").partition(" ")
            children.setdefault(int(rest.rpartition(")")[2].split()[1]), []).append(int(number))
    found = [process]
    for each in found:
        found += children.get(each, [])
    return found[1:]


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.001)


def _late(bounds: Bounds) -> DocumentError:
    return DocumentError(*refusal(f"took longer than {bounds.seconds:g} s", retryable=True))


def _greedy(bounds: Bounds) -> DocumentError:
    return DocumentError(*refusal(f"needed more than {bounds.memory_mb:g} MB of memory", retryable=True))


def _crashed(reason: str, retryable: bool = False) -> DocumentError:
    return DocumentError(*refusal(reason, retryable))


def _signal(code: int) -> str:
    """Empty for a process that ended on its own, or has not."""
    return f"signal {signal.Signals(-code).name}" if code < 0 else ""


def _unstartable(*why: str) -> DocumentError:
    return DocumentError(*refusal(": ".join(filter(None, ("the parser could not be started", *why))), retryable=True))
