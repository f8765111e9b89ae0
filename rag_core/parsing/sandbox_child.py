"""What runs in the sandbox's child process. It imports what the parser needs, then limits itself, then answers.

A request is two lengths, an uri and the stored bytes. A reply is a length and a pickled pair: what became of the
document, and the particulars.
"""

import ctypes
import math
import os
import pickle
import resource
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from typing import Literal, TypeAlias

from rag_core.errors import DocumentError
from rag_core.types import Document

Parse: TypeAlias = Callable[[str, bytes], Document]

REQUEST, REPLY = struct.Struct(">QQ"), struct.Struct(">Q")
DOCUMENT, REFUSED, OUT_OF_MEMORY = "document", "refused", "out of memory"
IDLE_SECONDS = 30.0
OPEN_FILES = 64
FILE_BYTES = 64_000_000
MEGABYTE = 1_000_000
_PR_SET_PDEATHSIG = 1


def serve(descriptor: int) -> None:
    """Until the parent closes its end, or has asked for nothing in IDLE_SECONDS."""
    with socket.socket(fileno=descriptor) as parent, parent.makefile("rb") as requests:
        parent.set_inheritable(False)
        _die_with_parent()
        (size,) = REPLY.unpack(requests.read(REPLY.size))
        parse, samples, seconds, memory_mb, output_bytes = pickle.loads(requests.read(size))  # noqa: S301 - trusted
        for uri, body in samples:
            _answer(parse, uri, body, output_bytes)  # what loads at first use, such as a model, loads before the limits
        _limit(memory_mb)
        _reply(parent, b"")
        while select.select([parent], [], [], IDLE_SECONDS)[0] and (lengths := requests.read(REQUEST.size)):
            uri, body = (requests.read(length) for length in REQUEST.unpack(lengths))
            _limit_cpu(seconds)
            _reply(parent, _answer(parse, uri.decode("utf-8", "surrogatepass"), body, output_bytes))


def scratch_prefix(process: int) -> str:
    """What a parser has the names of its folders for scratch begin with: they go with the child where it is killed."""
    return f"rag-parser-{process}-"


def refusal(reason: str, retryable: bool = False) -> tuple[str, str, bool, Literal["failed"]]:
    """The arguments of a DocumentError."""
    return "parse", reason, retryable, "failed"


def too_large(output_bytes: int) -> str:
    return f"output larger than {output_bytes / MEGABYTE:g} MB"


def _reply(parent: socket.socket, content: bytes) -> None:
    parent.sendall(REPLY.pack(len(content)) + content)


def _answer(parse: Parse, uri: str, body: bytes, output_bytes: int) -> bytes:
    try:
        content = pickle.dumps((DOCUMENT, parse(uri, body)), pickle.HIGHEST_PROTOCOL)
        reply = content if len(content) <= output_bytes else _refused(too_large(output_bytes))
    except DocumentError as error:
        reply = pickle.dumps((REFUSED, (error.stage, error.reason, error.retryable, error.status)))
    except MemoryError:
        reply = pickle.dumps((OUT_OF_MEMORY, ()))
    except BaseException as error:  # noqa: BLE001 - a parser may raise anything, and Rust's panics are no Exception
        reply = _refused(f"the parser failed: {_named(error)}")
    return reply


def _refused(reason: str) -> bytes:
    return pickle.dumps((REFUSED, refusal(reason)))


def _named(error: BaseException) -> str:
    return ": ".join((type(error).__name__, *str(error).strip().splitlines()[:1]))[:300]


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _limit(memory_mb: float) -> None:
    if sys.platform == "linux":
        _lower(resource.RLIMIT_AS, _mapped_bytes() + int(memory_mb * MEGABYTE))
        # where the whole machine runs out, this process goes first and not the worker that holds the job
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    _lower(resource.RLIMIT_NOFILE, OPEN_FILES)
    _lower(resource.RLIMIT_FSIZE, FILE_BYTES)
    _lower(resource.RLIMIT_CORE, 0)


def _limit_cpu(seconds: float) -> None:
    """Ends what spins on where the parent, which keeps the clock, cannot. Counted from now on, over all threads."""
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    most = math.ceil(time.process_time() + 2 * seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _lower(limit: int, most: int) -> None:
    hard = resource.getrlimit(limit)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(limit, (most, most))


def _mapped_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
