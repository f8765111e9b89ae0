"""The live progress of a job. It is read from the store, so any process can show it."""

import threading
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any
from uuid import UUID

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.status import Status

from rag_core.errors import StoreError
from rag_core.ingestion.report import DOCUMENT_STATUSES, Plan
from rag_core.storage.ledger import INTERRUPTED, Ledger
from rag_core.storage.postgres import Postgres

POLL_SECONDS = 0.25
END_PHASES = {"completed": "done", "cancelled": "cancelled", "failed": "failed"}
LINE_SECONDS = 10.0
"""Seconds between lines of progress, which replace the bar if there is no terminal."""


class ProgressLines:
    """Prints lines of progress if the console is not a terminal, at most one every `LINE_SECONDS`."""

    def __init__(self, console: Console) -> None:
        self._console, self._printed_at = console, monotonic()

    def print(self, line: str) -> None:
        if not self._console.is_terminal and monotonic() - self._printed_at > LINE_SECONDS:
            self._printed_at = monotonic()
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def documents_bar(console: Console) -> Progress:
    """A bar that counts documents. Its tasks have a field `rate`. Prints nothing if the console is not a terminal."""
    return Progress(
        TextColumn("{task.description:9}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        console=console,
        transient=not console.is_terminal,
        disable=not console.is_terminal,
    )


@dataclass
class JobProgress:
    """The progress display of a sync: "listing" at first, then the job of `begin` or `follow` until the block ends."""

    postgres: Postgres
    tenant: str
    console: Console
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _listing: Status = field(init=False)

    def __enter__(self) -> "JobProgress":
        self._listing = self.console.status("listing")
        self._listing.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_listing()
        self._ended.set()
        if self._thread:
            self._thread.join()

    def stop_listing(self) -> None:
        """Ends the display of "listing", so that the terminal can show a question."""
        self._listing.stop()

    def print(self, line: str) -> None:
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def begin(self, job: UUID, plan: Plan) -> None:
        """Prints the plan, and follows the job if it has documents to process."""
        self.stop_listing()
        self.console.print(
            f"{plan.listed} documents listed: {plan.added} added, {plan.changed} changed, {plan.deleted} deleted, "
            f"{plan.same} unchanged",
            highlight=False,
        )
        if plan.documents:
            self.follow(job, plan.documents)

    def follow(self, job: UUID, documents: int) -> None:
        """Shows the job in a separate thread until the block ends."""
        self.stop_listing()
        self._thread = threading.Thread(target=self._show_job, args=(job, documents), daemon=True)
        self._thread.start()

    def _show_job(self, job: UUID, total: int) -> None:
        display = _JobDisplay(job, total, self.console)
        with display.bar:
            while not self._ended.wait(POLL_SECONDS):
                with suppress(StoreError), self.postgres.connect() as connection:  # waits for a store that restarts
                    ledger = Ledger(connection, self.tenant)
                    while not self._ended.wait(POLL_SECONDS):
                        display.update(ledger)
            with suppress(StoreError), self.postgres.connect() as connection:
                display.show_end(Ledger(connection, self.tenant))


class _JobDisplay:
    """The bar of a job, or lines if there is no terminal, and each failure when it happens."""

    def __init__(self, job: UUID, total: int, console: Console) -> None:
        self._job, self._total = job, total
        self._started, self._failed, self._lines = monotonic(), 0, ProgressLines(console)
        self.bar = documents_bar(console)
        self._task: TaskID = self.bar.add_task("starting", total=total, rate="")

    def show_end(self, ledger: Ledger) -> None:
        """Shows the counts and how the job ended."""
        status = ledger.job(str(self._job))["status"]
        self.update(ledger, END_PHASES.get(status, "stopped"))

    def update(self, ledger: Ledger, phase: str = "") -> None:
        """Shows the counts and `phase`. An empty phase is derived from the counts.

        After the last document it is `finishing`: the indexes are updated.
        """
        counts = ledger.progress(self._job)
        processed = sum(counts[status] for status in ("same", *DOCUMENT_STATUSES))
        phase = phase or ("starting" if not processed else "ingesting" if processed < self._total else "finishing")
        rate = ""
        if processed:
            seconds = max(monotonic() - self._started, 0.001)
            rate = f"{processed / seconds:.0f} documents/s, {counts['chunks'] / seconds:.0f} chunks/s"
            if processed < self._total:
                rate += f", {(self._total - processed) * seconds / processed:.0f} s left"
        self.bar.update(self._task, completed=processed, description=phase, rate=rate)
        if counts["failed"] > self._failed:
            self._print_new_failures(ledger)
        self._lines.print(f"{processed} of {self._total} documents  {rate}")

    def _print_new_failures(self, ledger: Ledger) -> None:
        failures: list[dict[str, Any]] = ledger.failures(self._job, "failed")
        for failure in failures[self._failed :]:
            if failure["reason"] == INTERRUPTED:
                continue  # the job ended early, and its own error is printed
            line = f"failed: {failure['uri']}  {failure['stage']}: {failure['reason']}"
            self.bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
        self._failed = len(failures)
