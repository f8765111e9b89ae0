"""The runs in RAG_HOME/runs, for readers without a path: those that were promoted, and those with `--out` in there."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jobs.evaluation_runs import HTML, REPORT
from jobs.promotion import list_promoted_runs, runs_folder
from rag_core.errors import NotFoundError
from rag_core.types import DEFAULT_TENANT

HIDDEN_FIELDS = frozenset({"run", "machine"})
"""The fields of a report that name a place or a computer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """The evaluation of one dataset. `id` is the path below RAG_HOME/runs."""

    id: str
    folder: Path
    created_at: datetime
    report: dict[str, Any]
    promoted: bool

    @property
    def key(self) -> str:
        """Sorts runs by time. Two runs of the same moment differ in their ids."""
        return f"{self.created_at.isoformat()} {self.id}"

    def read_html(self) -> str | None:
        """The report as a page; None if the run has none."""
        path = self.folder / HTML
        return path.read_text(encoding="utf-8") if path.is_file() else None


def list_stored_runs(tenant: str) -> list[StoredRun]:
    """The runs of the tenant, newest first."""
    return sorted(_read_stored_runs(tenant), key=lambda run: run.key, reverse=True)


def find_stored_run(tenant: str, id: str) -> StoredRun:
    """Raises NotFoundError if the tenant has no such run."""
    for run in _read_stored_runs(tenant):
        if run.id == id:
            return run
    raise NotFoundError(f"there is no run {id}; GET /v1/evaluations lists them")


def _read_stored_runs(tenant: str) -> Iterator[StoredRun]:
    """Skips what is not a run: a report that is being written, or one of another version."""
    root, promoted = runs_folder(), list_promoted_runs()
    for path in [*root.glob(f"*/{REPORT}"), *root.glob(f"*/*/{REPORT}")]:
        try:
            report = json.loads(path.read_text(encoding="utf-8"))
            created_at = datetime.fromtimestamp(path.stat().st_mtime, UTC)
        except (OSError, ValueError):
            continue
        if not isinstance(report, dict) or not {"dataset", "split", "profile"} <= report.keys():
            continue
        if report.get("tenant", DEFAULT_TENANT) == tenant:
            public_report = {name: value for name, value in report.items() if name not in HIDDEN_FIELDS}
            id = path.parent.relative_to(root).as_posix()
            yield StoredRun(
                id=id, folder=path.parent, created_at=created_at, report=public_report, promoted=id in promoted
            )
