"""What is gone when a benchmark ends, also where it fails or is terminated: a folder, and a server in it."""

import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rag_core.storage import embedded

POSTGRES = "postgres"
"""The server's files, in the scratch folder."""


def exit_when_terminated() -> None:
    """From now on SIGTERM is SystemExit in the main thread: by itself it would end the process and nothing below it.
    Ray, when it starts, makes an abort of it: to be called again then."""
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Short, for a unix socket, and open, because root's Postgres is another user."""
    exit_when_terminated()
    folder = Path(tempfile.mkdtemp(prefix="rag-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def server_in(scratch: Path) -> Iterator[str]:
    """Its DSN."""
    dsn = embedded.start(scratch / POSTGRES)
    try:
        yield dsn
    finally:
        embedded.stop(scratch / POSTGRES)
