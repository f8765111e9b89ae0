"""What a sync would do, and what it did."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from rag_core.ingestion.delta import Delta

STAGES = ("read", "parse", "scan", "split")
ENDS = ("completed", "failed", "skipped", "quarantined")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a sync would do, or is about to. `bytes` are those that have to be read; `failed` are those of `same` that
    failed when they were last read."""

    collection: str
    listed: int
    added: int
    changed: int
    deleted: int
    same: int
    failed: int
    bytes: int

    @classmethod
    def of(cls, collection: str, changes: Sequence[Delta], prune: bool) -> "Plan":
        added = sum(len(change.added) for change in changes)
        changed = sum(len(change.changed) for change in changes)
        same = sum(change.same for change in changes)
        return cls(
            collection=collection,
            listed=added + changed + same,
            added=added,
            changed=changed,
            deleted=sum(len(change.deleted) for change in changes) if prune else 0,
            same=same,
            failed=sum(change.failed for change in changes),
            bytes=sum(change.bytes for change in changes),
        )

    @property
    def documents(self) -> int:
        return self.added + self.changed


@dataclass(frozen=True, slots=True)
class RunTimes:
    """Busy seconds that no single document can account for."""

    start: float = 0.0
    publish: float = 0.0
    index: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a sync did; counts are read back from the store. `seconds.total` is wall time, its stages are busy time."""

    job_id: UUID
    collection: str
    documents: Mapping[str, int]
    chunks: Mapping[str, int]
    seconds: Mapping[str, float]
    failures: Sequence[Mapping[str, Any]]
    skipped: Sequence[Mapping[str, Any]]
    quarantined: Sequence[Mapping[str, Any]] = ()
    notices: Sequence[str] = ()

    @property
    def dead_letters(self) -> int:
        """How many of the failures are for the moment only."""
        return sum(failure["retryable"] for failure in self.failures)

    @property
    def rate(self) -> dict[str, float]:
        """Completed documents and their chunks, over wall time without start-up."""
        working = max(self.seconds["total"] - self.seconds["start"], 1e-9)
        return {
            "documents_per_second": round(self.documents["completed"] / working, 1),
            "chunks_per_second": round((self.chunks["embedded"] + self.chunks["reused"]) / working, 1),
        }


def document_counts(plan: Plan, done: Mapping[str, int]) -> dict[str, int]:
    """`done` are the job's documents by what became of them; what was read and found unchanged is `same`, too."""
    ended = {name: done[name] for name in ("added", "changed", "deleted", *ENDS)}
    return {"listed": plan.listed, "same": plan.same + done["same"], **ended}


def chunk_counts(stored: int, done: Mapping[str, int]) -> dict[str, int]:
    return {
        "stored": stored,
        "embedded": done["embedded"],
        "reused": done["chunks"] - done["embedded"],
        "deleted": done["removed"],
    }


def stage_seconds(stages: Mapping[str, float], times: RunTimes, listing: float, total: float) -> dict[str, float]:
    seconds = {
        "total": total,
        "list": listing,
        "read_parse_split": sum(stages.get(stage, 0.0) for stage in STAGES),
        "embed": stages.get("embed", 0.0),
        "publish": times.publish,
        "index": times.index,
        "start": times.start,
    }
    return {stage: round(value, 3) for stage, value in seconds.items()}
