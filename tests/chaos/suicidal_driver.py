"""`rag ingest` in a process that kills its store's server at a statement of its own, and prints `killed` then.

    python suicidal_driver.py PHASE NUMBER PID_FILE ARGUMENTS...

The server is killed before the statement with this number, counted from 1, of a step of the sync. A killed postmaster
leaves its backends running for a moment, so it is open if the statement is committed.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from rag_core.ingestion import sync

PHASES = {"planning": ("_plan",), "finishing": ("_complete", "_report")}


def kill_at(phase: str, number: int, pid_file: Path) -> None:
    active, count = threading.local(), 0
    execute = psycopg.Connection.execute

    def counting_execute(connection: Any, *arguments: Any, **options: Any) -> Any:
        nonlocal count
        if getattr(active, "depth", 0):
            count += 1
            if count == number:
                os.kill(int(pid_file.read_text().split()[0]), signal.SIGKILL)
                print("killed", flush=True)
        return execute(connection, *arguments, **options)

    def count_statements(step: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            active.depth = 1
            try:
                return step(*arguments)
            finally:
                active.depth = 0

        return run

    psycopg.Connection.execute = counting_execute  # type: ignore[method-assign]
    for step in PHASES[phase]:
        setattr(sync._Run, step, count_statements(getattr(sync._Run, step)))


if __name__ == "__main__":
    kill_at(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
    sys.argv[1:4] = []
    from rag_cli.app import app

    app()
