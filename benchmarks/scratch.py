"""A temporary folder and a Postgres server in it. Both are removed when a benchmark ends, fails or is terminated."""

import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rag_core.storage import embedded

POSTGRES = "postgres"
"""The folder of the server's files, in the scratch folder."""


def exit_when_terminated() -> None:
    """Makes SIGTERM raise SystemExit in the main thread.

    By default SIGTERM ends the process without its clean-up and leaves its child processes running. Ray installs a
    handler that aborts when it starts, so call this again after Ray has started.
    """
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yields a new folder. Its path is short enough for a unix socket. Everybody can read it, because the Postgres that
    root starts runs as another user."""
    exit_when_terminated()
    folder = Path(tempfile.mkdtemp(prefix="rag-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def server_in(scratch: Path) -> Iterator[str]:
    """Starts a Postgres server in the folder and yields its DSN."""
    dsn = embedded.start(scratch / POSTGRES)
    try:
        yield dsn
    finally:
        embedded.stop(scratch / POSTGRES)
