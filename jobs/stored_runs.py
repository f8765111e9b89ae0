"""The runs in RAG_HOME/runs, for readers without a path: those that were promoted, and those with `--out` in there."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jobs.evaluation_runs import HTML, REPORT
from jobs.promotion import COPY_PREFIX, list_promoted_runs, runs_folder
from rag_core.errors import NotFoundError
from rag_core.types import DEFAULT_TENANT

HIDDEN_FIELDS = frozenset({"run", "machine", "command"})
"""The fields of a report that name places or a computer."""
REQUIRED_FIELDS = ("dataset", "split", "profile")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """The evaluation of one dataset. `id` is the path below RAG_HOME/runs. A promoted copy has the time of its run."""

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
    """Skips what is not a run: a report or copy that is being written, or a report of another version."""
    root, promoted = runs_folder(), list_promoted_runs()
    for path in [*root.glob(f"*/{REPORT}"), *root.glob(f"*/*/{REPORT}")]:
        if path.parent.name.startswith(COPY_PREFIX):
            continue
        try:
            report = json.loads(path.read_text(encoding="utf-8"))
            modified = datetime.fromtimestamp(path.stat().st_mtime, UTC)
        except (OSError, ValueError):
            continue
        if not isinstance(report, dict) or not all(isinstance(report.get(name), str) for name in REQUIRED_FIELDS):
            continue
        if report.get("tenant", DEFAULT_TENANT) == tenant:
            public_report = {name: value for name, value in report.items() if name not in HIDDEN_FIELDS}
            id = path.parent.relative_to(root).as_posix()
            yield StoredRun(
                id=id,
                folder=path.parent,
                created_at=_parse_time(report.get("finished")) or modified,
                report=public_report,
                promoted=id in promoted,
            )


def _parse_time(text: Any) -> datetime | None:
    """None without a time with its zone, such as in the reports of older versions."""
    try:
        time = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return time.astimezone(UTC) if time.tzinfo else None
