"""The code of the sandbox's child process. It imports what the parser needs, then limits itself, then answers.

A request is two lengths, a uri and the stored bytes. A reply is a length and a pickled pair: the kind of outcome, and
the document or the arguments of its DocumentError.
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
from typing import TypeAlias

from rag_core.errors import DocumentError, describe_error
from rag_core.types import Document

Parse: TypeAlias = Callable[[str, bytes], Document]

REQUEST, REPLY = struct.Struct(">QQ"), struct.Struct(">Q")
DOCUMENT, FAILURE, OUT_OF_MEMORY = "document", "refused", "out of memory"
IDLE_TIMEOUT = 30.0
MAX_OPEN_FILES = 64
MAX_FILE_BYTES = 64_000_000
MEGABYTE = 1_000_000
_PR_SET_PDEATHSIG = 1


def serve(descriptor: int) -> None:
    """Answers requests until the parent closes its socket or sends nothing for IDLE_TIMEOUT seconds."""
    with socket.socket(fileno=descriptor) as parent, parent.makefile("rb") as requests:
        parent.set_inheritable(False)
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # this process dies with its parent
        (size,) = REPLY.unpack(requests.read(REPLY.size))
        parse, samples, seconds, memory_mb, output_bytes = pickle.loads(requests.read(size))  # noqa: S301 - trusted
        for uri, body in samples:
            _answer(parse, uri, body, output_bytes)  # models and the like, loaded at first use, load before the limits
        _limit_resources(memory_mb)
        _reply(parent, b"")
        while select.select([parent], [], [], IDLE_TIMEOUT)[0] and (lengths := requests.read(REQUEST.size)):
            uri, body = (requests.read(length) for length in REQUEST.unpack(lengths))
            # CPU time from now on, over all threads: it ends a busy child that the parent's timeout cannot end
            hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
            soft = math.ceil(time.process_time() + 2 * seconds) + 1
            resource.setrlimit(resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))
            _reply(parent, _answer(parse, uri.decode("utf-8", "surrogatepass"), body, output_bytes))


def scratch_prefix(process: int) -> str:
    """The prefix for a parser's scratch folders. If the child is killed, folders with it are removed."""
    return f"rag-parser-{process}-"


def output_too_large(output_bytes: int) -> str:
    return f"output larger than {output_bytes / MEGABYTE:g} MB"


def _reply(parent: socket.socket, content: bytes) -> None:
    parent.sendall(REPLY.pack(len(content)) + content)


def _answer(parse: Parse, uri: str, body: bytes, output_bytes: int) -> bytes:
    try:
        content = pickle.dumps((DOCUMENT, parse(uri, body)), pickle.HIGHEST_PROTOCOL)
        reply = content if len(content) <= output_bytes else _failure(output_too_large(output_bytes))
    except DocumentError as error:
        reply = pickle.dumps((FAILURE, (error.stage, error.reason, error.retryable, error.status)))
    except MemoryError:
        reply = pickle.dumps((OUT_OF_MEMORY, ()))
    except BaseException as error:  # noqa: BLE001 - a parser can raise anything; Rust panics are not an Exception
        line = " ".join(describe_error(error).split())
        reply = _failure(f"the parser failed: {line[:300]}")
    return reply


def _failure(reason: str) -> bytes:
    return pickle.dumps((FAILURE, ("parse", reason, False, "failed")))


def _limit_resources(memory_mb: float) -> None:
    if sys.platform == "linux":
        with open("/proc/self/statm") as file:
            mapped_bytes = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        _lower_limit(resource.RLIMIT_AS, mapped_bytes + int(memory_mb * MEGABYTE))
        # if the machine runs out of memory, this process is killed first and not the worker that runs the job
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    _lower_limit(resource.RLIMIT_NOFILE, MAX_OPEN_FILES)
    _lower_limit(resource.RLIMIT_FSIZE, MAX_FILE_BYTES)
    _lower_limit(resource.RLIMIT_CORE, 0)


def _lower_limit(limit: int, maximum: int) -> None:
    hard = resource.getrlimit(limit)[1]
    maximum = maximum if hard == resource.RLIM_INFINITY else min(maximum, hard)
    resource.setrlimit(limit, (maximum, maximum))
