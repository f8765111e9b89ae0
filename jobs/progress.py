"""Live progress of a job, read from the store: so any process could show it."""

import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any
from uuid import UUID

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.status import Status

from rag_core.errors import StoreError
from rag_core.ingestion.report import ENDS, Plan
from rag_core.storage.ledger import INTERRUPTED, Ledger
from rag_core.storage.postgres import Postgres

POLL = 0.25
TERMINAL_LINE = 10.0
"""Seconds between lines where there is no terminal to redraw."""


@dataclass
class JobProgress:
    """Shows that sources are listed until `listed`, and the job that `begin` or `follow` names, from then until the
    block ends."""

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
        self.listed()
        self._ended.set()
        if self._thread:
            self._thread.join()

    def listed(self) -> None:
        """Nothing is redrawn from now on: something may be asked."""
        self._listing.stop()

    def begin(self, job: UUID, plan: Plan) -> None:
        self.listed()
        self.console.print(
            f"{plan.listed} documents listed: {plan.added} added, {plan.changed} changed, {plan.deleted} deleted, "
            f"{plan.same} unchanged",
            highlight=False,
        )
        if plan.documents:
            self.follow(job, plan.documents)

    def follow(self, job: UUID, documents: int) -> None:
        """From now on, in a thread of its own."""
        self.listed()
        self._thread = threading.Thread(target=self._follow, args=(job, documents), daemon=True)
        self._thread.start()

    def _follow(self, job: UUID, total: int) -> None:
        with suppress(StoreError), self.postgres.connect() as connection:
            watch = _Watch(Ledger(connection, self.tenant), job, total, self.console)
            with watch.bar:
                while not self._ended.wait(POLL):
                    watch.update()
                watch.update("done")


class _Watch:
    def __init__(self, ledger: Ledger, job: UUID, total: int, console: Console) -> None:
        self._ledger, self._job, self._total, self._console = ledger, job, total, console
        self._began, self._failed, self._spoken = monotonic(), 0, monotonic()
        self.bar = _bar(console)
        self._task: TaskID = self.bar.add_task("starting", total=total, rates="")

    def update(self, phase: str = "") -> None:
        counts = self._ledger.progress(self._job)
        done = sum(counts[status] for status in ("same", *ENDS))
        self.bar.update(
            self._task, completed=done, description=phase or _phase(done, self._total), rates=self._rates(counts, done)
        )
        if counts["failed"] > self._failed:
            self._tell_failures()
        if not self._console.is_terminal and monotonic() - self._spoken > TERMINAL_LINE:
            self._spoken = monotonic()
            self._console.print(f"{done} of {self._total} documents  {self._rates(counts, done)}", highlight=False)

    def _rates(self, counts: Mapping[str, int], done: int) -> str:
        if not done:
            return ""
        seconds = max(monotonic() - self._began, 0.001)
        left = (self._total - done) * seconds / done
        rates = f"{done / seconds:.0f} documents/s, {counts['chunks'] / seconds:.0f} chunks/s"
        return f"{rates}, {left:.0f} s left" if done < self._total else rates

    def _tell_failures(self) -> None:
        failures: list[dict[str, Any]] = self._ledger.failures(self._job, "failed")
        for failure in failures[self._failed :]:
            if failure["reason"] == INTERRUPTED:
                continue  # the job ended early, and says so itself
            line = f"failed: {failure['uri']}  {failure['stage']}: {failure['reason']}"
            self.bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
        self._failed = len(failures)


def _phase(done: int, total: int) -> str:
    """After the last document indexes are brought up to date."""
    return "starting" if not done else "ingesting" if done < total else "finishing"


def _bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description:9}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rates]}"),
        TimeElapsedColumn(),
        console=console,
        transient=not console.is_terminal,
        disable=not console.is_terminal,
    )
