"""Brings a collection in step with its sources: list, compare, do what is needed, account for it."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID

from rag_core.errors import ConfirmationError
from rag_core.ingestion.delta import Delta, delta
from rag_core.ingestion.recipe import Recipe
from rag_core.protocols import Source
from rag_core.storage.catalog import Catalog, Collection
from rag_core.storage.ledger import Action, Job, Ledger
from rag_core.storage.postgres import Postgres
from rag_core.storage.publishing import Target
from rag_core.types import Draft, document_id

DELETED_AT_ONCE = 1_000
SHARE_MATTERS_FROM = 4
"""Below so many stored documents of a source, any share of them may go without asking."""


@dataclass(frozen=True, slots=True)
class RunTimes:
    """Busy seconds that no single document can account for."""

    start: float = 0.0
    publish: float = 0.0


class Runner(Protocol):
    def run(self, target: Target, sources: Mapping[int, Source], drafts: Sequence[Draft]) -> RunTimes:
        """Every draft through all stages into the store. What fails is published as failed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a sync would do, and has begun to do when it is told of."""

    collection: str
    listed: int
    added: int
    changed: int
    deleted: int
    same: int
    bytes: int

    @property
    def documents(self) -> int:
        return self.added + self.changed


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a sync did; counts are read back from the store."""

    job_id: UUID
    collection: str
    documents: Mapping[str, int]
    chunks: Mapping[str, int]
    seconds: Mapping[str, float]
    failures: Sequence[Mapping[str, Any]]
    skipped: Sequence[Mapping[str, Any]]
    notices: Sequence[str] = ()

    @property
    def rate(self) -> dict[str, float]:
        """Completed documents and their chunks, over wall time without start-up."""
        working = max(self.seconds["total"] - self.seconds["start"], 1e-9)
        return {
            "documents_per_second": round(self.documents["completed"] / working, 1),
            "chunks_per_second": round((self.chunks["embedded"] + self.chunks["reused"]) / working, 1),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`prune`: delete what is absent from a complete listing. `confirmed`: also when it is a large share of it.
    `checksum`: read everything, however unchanged it looks."""

    prune: bool = True
    confirmed: bool = False
    checksum: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """One sync of one collection. `settings` are kept with the job as they are now."""

    postgres: Postgres
    tenant: str
    collection: str
    sources: Sequence[Source]
    recipe: Recipe
    profile: str = "default"
    settings: Mapping[str, Any] = field(default_factory=dict)
    delete_share: float = 0.5
    options: Options = Options()

    def plan(self) -> Plan:
        """What `run` would do; nothing is written."""
        with self.postgres.connect() as connection:
            catalog = Catalog(connection, self.tenant)
            known = {source.uri: source.id for source in catalog.sources(self.collection)}
            changes = []
            for source in self.sources:
                stored = catalog.manifest(catalog.collection(self.collection).id, known[source.uri]) if source.uri in known else {}
                changes.append(delta(source.listing(), stored, self.recipe.of, self.options.checksum))
        return _plan(self.collection, changes, self.options)

    def run(self, runner: Runner, tell: Callable[[UUID, Plan], None] = lambda job, plan: None) -> Report:
        """`tell` gets the job's id when it begins. ConfirmationError, BusyError and ListingError leave all as it was."""
        began, listed_ns = time.perf_counter(), time.time_ns()
        with self.postgres.connect() as connection:
            catalog, ledger = Catalog(connection, self.tenant), Ledger(connection, self.tenant)
            collection = catalog.ensure_collection(self.collection)
            sources = {catalog.ensure_source(collection, source.uri): source for source in self.sources}
            ledger.claim(collection.id, list(sources))
            changes = self._changes(catalog, collection, sources)
            list_seconds = time.perf_counter() - began
            plan = _plan(self.collection, list(changes.values()), self.options)
            job = self._begin(ledger, collection, changes, plan)
            target = Target(
                postgres=self.postgres,
                tenant=self.tenant,
                collection=collection.id,
                space=catalog.ensure_space(self.recipe.space),
                job=job.id,
                run=job.run,
                listed_ns=listed_ns,
            )
            tell(job.id, plan)
            try:
                times = self._work(runner, target, sources, changes)
            except BaseException as error:
                ledger.end(job.id, *_ending(error))
                raise
            catalog.listed(collection.id, list(sources), listed_ns)
            notices = self._searched_in(catalog, collection, target.space)
            seconds = _seconds(ledger.stage_seconds(job.id), times, list_seconds, time.perf_counter() - began)
            ledger.end(job.id, "completed", seconds=seconds)
            return self._report(catalog, ledger, job.id, plan, seconds, notices)

    def _changes(self, catalog: Catalog, collection: Collection, sources: Mapping[int, Source]) -> dict[int, Delta]:
        changes = {}
        for id, source in sources.items():
            stored = catalog.manifest(collection.id, id)
            changes[id] = delta(source.listing(), stored, self.recipe.of, self.options.checksum)
            if self.options.prune and not self.options.confirmed:
                self._confirm(source.uri, len(changes[id].deleted), len(stored))
        return changes

    def _confirm(self, uri: str, deleted: int, stored: int) -> None:
        if stored >= SHARE_MATTERS_FROM and deleted > self.delete_share * stored:
            raise ConfirmationError(
                f"{deleted} of the {stored} documents stored of {uri} are no longer there. Deleting more than "
                f"{self.delete_share:.0%} of a source wants a yes: add --yes, or --no-prune to keep them"
            )

    def _begin(self, ledger: Ledger, collection: Collection, changes: Mapping[int, Delta], plan: Plan) -> Job:
        items: list[tuple[UUID, str, Action]] = []
        for change in changes.values():
            items += [(self._id(entry.uri), entry.uri, "add") for entry in change.added]
            items += [(document.id, entry.uri, "change") for entry, document in change.changed]
            items += [(gone.id, gone.entry.uri, "delete") for gone in change.deleted if self.options.prune]
        return ledger.begin(collection.id, list(changes), self.profile, self.settings, plan.same, items)

    def _work(
        self, runner: Runner, target: Target, sources: Mapping[int, Source], changes: Mapping[int, Delta]
    ) -> RunTimes:
        drafts = [draft for source, change in changes.items() for draft in self._drafts(source, change)]
        times = runner.run(target, sources, drafts) if drafts else RunTimes()
        if self.options.prune:
            _delete(target, [document.id for change in changes.values() for document in change.deleted])
        return times

    def _drafts(self, source: int, change: Delta) -> list[Draft]:
        """Largest first, so that no large document is what everybody waits for at the end."""
        drafts = []
        for entry in change.added:
            drafts.append(Draft(id=self._id(entry.uri), source=source, entry=entry, recipe=self.recipe.of(entry.uri)))
        for entry, stored in change.changed:
            recipe = self.recipe.of(entry.uri)
            trusted = stored.recipe == recipe and not stored.retryable
            known = stored.sha256 if trusted else b""
            drafts.append(Draft(id=stored.id, source=source, entry=entry, recipe=recipe, known_sha256=known))
        return sorted(drafts, key=lambda draft: -draft.entry.size)

    def _id(self, uri: str) -> UUID:
        return document_id(self.tenant, self.collection, uri)

    def _searched_in(self, catalog: Catalog, collection: Collection, space: int) -> list[str]:
        if collection.space == space or catalog.move_to_space(collection.id, space):
            return []
        return [
            f"collection {self.collection!r} is still searched with its former embedding model: not every document has a "
            f"vector of {self.recipe.space.model} yet; ingest its other sources too"
        ]

    def _report(
        self,
        catalog: Catalog,
        ledger: Ledger,
        job: UUID,
        plan: Plan,
        seconds: Mapping[str, float],
        notices: Sequence[str],
    ) -> Report:
        done = ledger.progress(job)
        return Report(
            job_id=job,
            collection=self.collection,
            documents={
                "listed": plan.listed,
                "added": done["added"],
                "changed": done["changed"],
                "deleted": done["deleted"],
                "same": plan.same + done["same"],
                "completed": done["completed"],
                "failed": done["failed"],
                "skipped": done["skipped"],
                "quarantined": 0,
            },
            chunks={
                "stored": catalog.chunk_count(self.collection),
                "embedded": done["embedded"],
                "reused": done["chunks"] - done["embedded"],
                "deleted": done["removed"],
            },
            seconds=seconds,
            failures=ledger.failures(job, "failed"),
            skipped=ledger.failures(job, "skipped"),
            notices=notices,
        )


def _plan(collection: str, changes: Sequence[Delta], options: Options) -> Plan:
    added = sum(len(change.added) for change in changes)
    changed = sum(len(change.changed) for change in changes)
    same = sum(change.same for change in changes)
    return Plan(
        collection=collection,
        listed=added + changed + same,
        added=added,
        changed=changed,
        deleted=sum(len(change.deleted) for change in changes) if options.prune else 0,
        same=same,
        bytes=sum(change.bytes for change in changes),
    )


def _delete(target: Target, documents: Sequence[UUID]) -> None:
    if not documents:
        return
    writer = target.open()
    try:
        for first in range(0, len(documents), DELETED_AT_ONCE):
            writer.delete(documents[first : first + DELETED_AT_ONCE])
    finally:
        writer.close()


def _ending(error: BaseException) -> tuple[str, str]:
    if isinstance(error, KeyboardInterrupt):
        return "cancelled", "interrupted"
    return "failed", f"{type(error).__name__}: {error}"[:1000]


def _seconds(stages: Mapping[str, float], times: RunTimes, listing: float, total: float) -> dict[str, float]:
    seconds = {
        "total": total,
        "list": listing,
        "read_parse_split": sum(stages.get(stage, 0.0) for stage in ("read", "parse", "split")),
        "embed": stages.get("embed", 0.0),
        "publish": times.publish,
        "start": times.start,
    }
    return {stage: round(value, 3) for stage, value in seconds.items()}
