"""The plan of a sync, and the report of what it did."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from rag_core.ingestion.delta import Delta

PREPARATION_STAGES = ("read", "parse", "scan", "split")
DOCUMENT_STATUSES = ("completed", "failed", "skipped", "quarantined")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The number of documents that a sync would process.

    `bytes` is the size of the documents to read. `failed` counts those of `same` that failed when they were last read.
    """

    collection: str
    listed: int
    added: int
    changed: int
    deleted: int
    same: int
    failed: int
    bytes: int

    @classmethod
    def from_deltas(cls, collection: str, deltas: Sequence[Delta], prune: bool) -> "Plan":
        added = sum(len(delta.added) for delta in deltas)
        changed = sum(len(delta.changed) + len(delta.regrouped) for delta in deltas)
        same = sum(delta.same for delta in deltas)
        return cls(
            collection=collection,
            listed=added + changed + same,
            added=added,
            changed=changed,
            deleted=sum(len(delta.deleted) for delta in deltas) if prune else 0,
            same=same,
            failed=sum(delta.failed for delta in deltas),
            bytes=sum(delta.bytes for delta in deltas),
        )

    @property
    def documents(self) -> int:
        return self.added + self.changed


@dataclass(frozen=True, slots=True)
class RunTimes:
    """Busy seconds that belong to no single document."""

    start: float = 0.0
    publish: float = 0.0
    index: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReport:
    """The result of a sync; its counts are read from the store.

    `seconds["total"]` is wall time, the other `seconds` are busy times of stages.
    """

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
        """The number of failures that another attempt can solve."""
        return sum(failure["retryable"] for failure in self.failures)

    @property
    def rate(self) -> dict[str, float]:
        """Completed documents and their chunks, per second of wall time without start-up."""
        working_seconds = max(self.seconds["total"] - self.seconds["start"], 1e-9)
        return {
            "documents_per_second": round(self.documents["completed"] / working_seconds, 1),
            "chunks_per_second": round((self.chunks["embedded"] + self.chunks["reused"]) / working_seconds, 1),
        }


def document_counts(plan: Plan, progress: Mapping[str, int]) -> dict[str, int]:
    """Counts documents by result. Those that were read and found unchanged count as `same`, too.

    `progress` is the ledger's count of the job's documents, by result.
    """
    ended = {name: progress[name] for name in ("added", "changed", "deleted", *DOCUMENT_STATUSES)}
    return {"listed": plan.listed, "same": plan.same + progress["same"], **ended}


def chunk_counts(stored: int, progress: Mapping[str, int]) -> dict[str, int]:
    return {
        "stored": stored,
        "embedded": progress["embedded"],
        "reused": progress["chunks"] - progress["embedded"],
        "deleted": progress["removed"],
    }


def stage_seconds(stages: Mapping[str, float], times: RunTimes, listing: float, total: float) -> dict[str, float]:
    """The report's `seconds`. `stages` holds the sums over all documents, by stage; `listing` is in seconds."""
    seconds = {
        "total": total,
        "list": listing,
        "read_parse_split": sum(stages.get(stage, 0.0) for stage in PREPARATION_STAGES),
        "embed": stages.get("embed", 0.0),
        "publish": times.publish,
        "index": times.index,
        "start": times.start,
    }
    return {stage: round(value, 3) for stage, value in seconds.items()}
