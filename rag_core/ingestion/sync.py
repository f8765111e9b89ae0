"""Synchronizes a collection with its sources: list, compare, ingest, report."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar
from uuid import UUID, uuid4

from rag_core.errors import (
    BusyError,
    ConfirmationError,
    LimitError,
    RagError,
    SpaceError,
    StoppedError,
    StoreError,
    describe_error,
)
from rag_core.ingestion.access import NO_RULES, AccessRules
from rag_core.ingestion.background import repeat_in_background
from rag_core.ingestion.containers.uris import enclosing_uris, file_uri
from rag_core.ingestion.delta import Delta, compute_delta
from rag_core.ingestion.recipe import HASH_SEPARATOR, Recipe, find_profile, is_outdated
from rag_core.ingestion.report import Plan, RunTimes, SyncReport, chunk_counts, document_counts, stage_seconds
from rag_core.ingestion.watch import Check, never_stop, watch_job
from rag_core.protocols import Source
from rag_core.storage.catalog import Catalog, Collection
from rag_core.storage.ledger import NO_JOB, Action, Job, Ledger, fencing_error
from rag_core.storage.maintenance import Maintenance
from rag_core.storage.postgres import Postgres, retry_attempts
from rag_core.storage.publishing import WriteTarget
from rag_core.types import Draft, Entry, StoredDocument, document_id

T = TypeVar("T")

_log = logging.getLogger(__name__)
DELETE_BATCH = 1_000
MIN_DOCUMENTS_FOR_SHARE = 4
"""The number of stored documents from which deletions are limited to a share of the source. Smaller sources have no
limit."""
ANALYZE_AFTER = 2.0
"""Seconds after which a load updates the planner's statistics for the first time; later waits double. Filtered searches
during a load need them for good plans."""


class Runner(Protocol):
    def run(
        self, target: WriteTarget, sources: Mapping[int, Source], drafts: Sequence[Draft], check: Check
    ) -> RunTimes:
        """Passes every draft through all stages into the store. Documents that fail are published as failed.

        If `check` raises an error, the work ends with that error within one batch.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncOptions:
    """The options of one sync.

    `prune` deletes documents that are missing from a complete listing; `confirmed` allows that for a large share of the
    source. `checksum` reads all documents, even those that look unchanged. `only` limits the sync to these uris, which
    are processed even if they are unchanged; nothing is deleted then.
    """

    prune: bool = True
    confirmed: bool = False
    checksum: bool = False
    only: frozenset[str] = frozenset()

    @property
    def should_prune(self) -> bool:
        return self.prune and not self.only


DEFAULT_OPTIONS = SyncOptions()
DEFAULT_MAINTENANCE = Maintenance()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """One sync of one collection. `settings` are stored with the job.

    `graph` and `splade` become `builds_graph` and `splade` of the `WriteTarget`, which explains them.
    `partial_uris` are the uris of sources that list only some of their documents: nothing of them is deleted. `job` and
    `fence` belong to a queued job that this process has leased; without them, the sync creates a job itself. The
    listings can have `max_documents` entries together; 0 means any number. `check` can stop the work, as in `Runner`.
    """

    postgres: Postgres
    tenant: str
    collection: str
    sources: Sequence[Source]
    recipe: Recipe
    profile: str = "default"
    settings: Mapping[str, Any] = field(default_factory=dict)
    delete_share: float = 0.5
    store_timeout: float = 60.0
    graph: bool = False
    splade: str = ""
    access: AccessRules = NO_RULES
    options: SyncOptions = DEFAULT_OPTIONS
    maintenance: Maintenance = DEFAULT_MAINTENANCE
    partial_uris: frozenset[str] = frozenset()
    job: UUID = NO_JOB
    fence: int = 0
    max_documents: int = 0
    check: Check = never_stop

    @property
    def is_queued(self) -> bool:
        return self.job != NO_JOB

    def plan(self) -> Plan:
        """The plan that `run` would carry out. Writes nothing."""
        with self.postgres.connect() as connection:
            catalog = Catalog(connection, self.tenant)
            deltas = [
                compute_delta(
                    source.listing(),
                    catalog.manifest_by_uri(self.collection, source.uri, self.access.keys),
                    self.recipe.recompute,
                    self.options.checksum,
                    access=self.access,
                )
                for source in self.sources
            ]
        return Plan.from_deltas(self.collection, deltas, self.options.should_prune)

    def run(self, runner: Runner, on_start: Callable[[UUID, Plan], None] | None = None) -> SyncReport:
        """Carries out the sync. `on_start` receives the id of the job when it begins, and its plan.

        Waits for an unavailable store, and raises StoreError after `store_timeout`. Raises ConfirmationError,
        BusyError, ListingError or LimitError before any document has changed. Raises FencedError if the job is
        cancelled or taken over meanwhile. If a queued job fails, its leaseholder must end it, because the job can be
        tried again.
        """
        with closing(_Run(self)) as run:
            deltas, plan, target = run.plan()
            try:
                if on_start:
                    on_start(target.job, plan)
                times = run.ingest(runner, target, deltas)
                return run.finish(target, plan, times)
            except BaseException as error:
                run.abandon(target, error)
                raise


class _Run:
    """The steps of a sync, in order. Its claim on the sources lasts as long as the connection.

    Each step can be repeated over a new connection, even if it is unknown what the lost one has committed.
    """

    _collection: Collection
    _space: int
    _job: Job
    _seconds: Mapping[str, float]

    def __init__(self, sync: Sync) -> None:
        self._started, self._listed_ns = time.perf_counter(), time.time_ns()
        self._sync, self._job_id = sync, sync.job if sync.is_queued else uuid4()
        self._stack = ExitStack()
        self._sources: dict[int, Source] = {}
        self._damaged: frozenset[UUID] = frozenset()
        self._listing_seconds = self._index_seconds = 0.0
        self._notices: list[str] = []

    def plan(self) -> tuple[dict[int, Delta], Plan, WriteTarget]:
        """Claims the sources, compares them with the store, and records the job. The deltas are by source id."""
        return self._repeat_while_unavailable(self._plan, StoreError)

    def _plan(self) -> tuple[dict[int, Delta], Plan, WriteTarget]:
        self._connect()
        sync = self._sync
        # the job of a sync outside the queue is not recorded before its listing, so nobody can cancel it until then
        watch = (
            watch_job(sync.postgres, sync.tenant, sync.job, sync.fence) if sync.is_queued else nullcontext(sync.check)
        )
        with watch as check:
            deltas = self._prepare(check)
        plan = Plan.from_deltas(sync.collection, list(deltas.values()), sync.options.should_prune)
        return deltas, plan, self._begin(deltas, plan)

    def _prepare(self, check: Check) -> dict[int, Delta]:
        """Claims the sources and compares them with the store. Returns the deltas by source id.

        Before it raises an error, it removes the collection and the sources that it has added.
        """
        self._listed, self._check_listing = 0, check
        self._collection = self._catalog.ensure_collection(self._sync.collection)
        self._space = self._catalog.ensure_space(self._sync.recipe.space)
        self._claim_sources()
        try:
            if self._sync.is_queued:
                self._ledger.start(self._sync.job, self._sync.fence)
            self._check_complete_move()
            deltas = {id: self._compare_source(id, source) for id, source in self._sources.items()}
        except BaseException:
            with suppress(StoreError):
                self._catalog.delete_unused_sources(self._collection.id, list(self._sources))
            raise
        self._listing_seconds = time.perf_counter() - self._started
        return deltas

    def _begin(self, deltas: Mapping[int, Delta], plan: Plan) -> WriteTarget:
        """Records the job and all its documents in the ledger."""
        sync, collection = self._sync, self._collection.id
        items = [item for delta in deltas.values() for item in self._list_items(delta)]
        if sync.is_queued:
            complete = [id for id in deltas if not self._is_partial(id)]
            job = self._ledger.take_over(sync.job, sync.fence, collection, list(deltas), complete, plan.same, items)
        else:
            listed_at = datetime.fromtimestamp(self._listed_ns / 1e9, UTC)
            job = self._ledger.begin(
                collection, list(deltas), sync.profile, sync.settings, plan.same, items, self._job_id, listed_at
            )
        self._job = job
        return WriteTarget(
            postgres=sync.postgres,
            tenant=sync.tenant,
            collection=collection,
            space=self._space,
            job=job.id,
            run=job.run,
            listed_ns=self._listed_ns,
            fence=job.fence,
            store_timeout=sync.store_timeout,
            builds_graph=sync.graph,
            splade=sync.splade,
        )

    def ingest(self, runner: Runner, target: WriteTarget, deltas: Mapping[int, Delta]) -> RunTimes:
        """Ingests the added and the changed documents, and deletes the missing ones.

        Skips documents that an earlier run of the job has finished.
        """
        drafts = [draft for source, delta in deltas.items() for draft in self._build_drafts(source, delta)]
        drafts = [draft for draft in drafts if draft.id not in self._job.finished_documents]
        drafts = sort_by_file(drafts)
        added = sum(len(delta.added) for delta in deltas.values())
        changed = [pair for delta in deltas.values() for pair in delta.changed]
        # documents that were only touched have their vectors already: they add none to an index
        new = added + sum(is_outdated(stored, self._sync.recipe.recompute(stored)) for _, stored in changed)
        with suppress(StoreError):  # the index is only slower to update than to build again
            self._maintain(lambda maintenance, *scope: maintenance.prepare_bulk_load(*scope, target.space, new))
        sync = self._sync
        with (
            repeat_in_background(self._analyze, ANALYZE_AFTER, sync.store_timeout),
            # the sources are free at once, because a job that has ended writes nothing more
            watch_job(sync.postgres, sync.tenant, target.job, target.fence, self._ledger.close) as check_job,
        ):

            def check() -> None:
                check_job()
                sync.check()

            self._change_access(target, deltas)
            times = runner.run(target, self._sources, drafts, check) if drafts else RunTimes()
        if self._sync.options.should_prune:
            missing = [document.id for delta in deltas.values() for document in delta.deleted]
            if deleted := [id for id in missing if id not in self._job.finished_documents]:
                with closing(target.open()) as writer:
                    for first in range(0, len(deleted), DELETE_BATCH):
                        writer.delete(deleted[first : first + DELETE_BATCH])
        return times

    def _change_access(self, target: WriteTarget, deltas: Mapping[int, Delta]) -> None:
        """Stores the groups of documents that need no reading. It is done first: it can withdraw a right."""
        finished = self._job.finished_documents
        groups = {stored.id: groups for delta in deltas.values() for stored, groups in delta.regrouped}
        if changed := [(id, groups[id]) for id in sorted(groups) if id not in finished]:
            with closing(target.open()) as writer:
                for first in range(0, len(changed), DELETE_BATCH):
                    writer.change_access(dict(changed[first : first + DELETE_BATCH]))

    def finish(self, target: WriteTarget, plan: Plan, times: RunTimes) -> SyncReport:
        """Ends the job and reads its report from the ledger. Raises FencedError if another process ended the job."""
        self._repeat_while_unavailable(lambda: self._complete(target, plan, times), StoreError, BusyError)
        return self._repeat_while_unavailable(lambda: self._report(target, plan), StoreError)

    def _complete(self, target: WriteTarget, plan: Plan, times: RunTimes) -> None:
        """Brings the indexes up to date, and ends the job."""
        if self._ledger.is_disconnected():
            self._connect()
            if self._ledger.has_completed(target.job, target.fence):
                return
            self._ledger.reclaim(self._collection.id, list(self._sources))
        self._ledger.record_finishing(target.job, target.fence)
        if not self._sync.options.only:
            self._catalog.record_listing(self._collection.id, list(self._sources), self._listed_ns)
        self._notices = [
            *self._maintain(Maintenance.run),
            *self._move_to_space(target.space),
            *self._describe_profiles(target),
        ]
        if plan.failed:
            self._notices.append(
                f"{plan.failed} of the unchanged documents failed before and were not retried; to list them: "
                f"rag documents list --collection {plan.collection} --status failed"
            )
        stages, total = self._ledger.stage_seconds(target.job), time.perf_counter() - self._started
        self._seconds = stage_seconds(stages, replace(times, index=self._index_seconds), self._listing_seconds, total)
        if not self._ledger.end(target.job, "completed", seconds=self._seconds, fence=target.fence):
            raise fencing_error(target.job)

    def _describe_profiles(self, target: WriteTarget) -> list[str]:
        """A notice for each profile that was detected for single documents. Logs them, too."""
        if not self._sync.recipe.labels:
            return []
        notices = []
        for label, count in self._ledger.count_labels(target.job).items():
            use = "its chunker" if HASH_SEPARATOR in label else "that of all others: it needs another embedding model"
            notices.append(f"documents that match profile {find_profile(label)}: {count}, split by {use}")
            _log.info("%s", notices[-1])
        return notices

    def _report(self, target: WriteTarget, plan: Plan) -> SyncReport:
        if self._ledger.is_disconnected():
            self._connect()
        progress = self._ledger.progress(target.job)
        return SyncReport(
            job_id=target.job,
            collection=self._sync.collection,
            documents=document_counts(plan, progress),
            chunks=chunk_counts(self._catalog.count_chunks(self._sync.collection), progress),
            seconds=self._seconds,
            failures=self._ledger.failures(target.job, "failed"),
            skipped=self._ledger.failures(target.job, "skipped"),
            quarantined=self._ledger.failures(target.job, "quarantined"),
            notices=self._notices,
        )

    def abandon(self, target: WriteTarget, error: BaseException) -> None:
        """Ends the job as failed or cancelled; does nothing if it is a queued one."""
        if self._sync.is_queued:
            return
        interrupted = isinstance(error, KeyboardInterrupt | StoppedError)
        reason = "interrupted" if interrupted else describe_error(error)
        with suppress(StoreError):  # if the store is unavailable, the next job on these sources ends this one
            if self._ledger.is_disconnected():
                self._connect()
            self._ledger.end(target.job, "cancelled" if interrupted else "failed", reason)

    def close(self) -> None:
        self._stack.close()

    def _connect(self) -> None:
        """Opens a connection, and closes the one before."""
        self._stack.close()
        connection = self._stack.enter_context(closing(self._sync.postgres.connect()))
        self._catalog = Catalog(connection, self._sync.tenant)
        self._ledger = Ledger(connection, self._sync.tenant)
        self._stack.callback(self._ledger.close)

    def _repeat_while_unavailable(self, step: Callable[[], T], *errors: type[RagError]) -> T:
        """Repeats a step while it raises one of the errors, for as long as writers wait for the store.

        After a lost connection, a source can stay locked until the server notices the loss.
        """
        try:
            return step()
        except errors:
            if not self._sync.store_timeout:
                raise
        for attempt in retry_attempts(self._sync.store_timeout, StoreError, BusyError):
            with attempt:
                return step()
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _claim_sources(self) -> None:
        ids = self._catalog.ensure_sources(self._collection, [source.uri for source in self._sync.sources])
        self._sources = dict(zip(ids, self._sync.sources, strict=True))
        self._ledger.claim(self._collection.id, ids, self._job_id)
        if self._collection.space is None:
            return
        listed = None
        if all(map(self._is_partial, ids)):
            listed = [self._document_id(entry.uri) for source in self._sources.values() for entry in source.listing()]
        self._damaged = self._catalog.find_damaged_documents(
            self._collection.id, self._collection.space, self._sync.splade, listed
        )

    def _check_complete_move(self) -> None:
        """Raises SpaceError if the sync would move only some of the collection's documents to another space.

        Documents that change while a collection is in two spaces would be found in neither of them.
        """
        if self._collection.space in (None, self._space):
            return
        missing = []
        for source in self._catalog.sources(self._collection.name):
            moved = 0
            if source.id in self._sources:
                entries = self._sources[source.id].listing() if self._is_partial(source.id) else None
                moved = source.documents if entries is None else len(self._load_manifest(source.id, entries))
            if source.documents > moved:
                missing.append(source.uri)
        if missing:
            uris = " ".join(sorted(missing))
            raise SpaceError(
                f"collection {self._collection.name!r} is embedded with another model than "
                f"{self._sync.recipe.space.model}; to change its model, ingest all its sources in one command; "
                f"missing: {uris}"
            )

    def _load_manifest(self, source: int, entries: Iterable[Entry]) -> dict[str, StoredDocument]:
        """The stored documents of these entries, by uri."""
        ids = [self._document_id(entry.uri) for entry in entries]
        return self._catalog.manifest_of_documents(self._collection.id, source, ids, self._sync.access.keys)

    def _compare_source(self, id: int, source: Source) -> Delta:
        options, recipe, access = self._sync.options, self._sync.recipe.recompute, self._sync.access
        if self._is_partial(id):
            entries = list(self._list_entries(source))
            stored = self._load_manifest(id, entries)
            return compute_delta(entries, stored, recipe, damaged=self._damaged, access=access)
        stored = self._catalog.manifest(self._collection.id, id, access.keys)
        if options.only:
            selected = frozenset(document.id for uri, document in stored.items() if uri in options.only)
            # a container that failed is listed as its members when it can be opened
            entries = [
                entry
                for entry in self._list_entries(source)
                if not options.only.isdisjoint((entry.uri, *enclosing_uris(entry.uri)))
            ]
            return compute_delta(entries, stored, recipe, damaged=selected, access=access)
        delta = compute_delta(self._list_entries(source), stored, recipe, options.checksum, self._damaged, access)
        needs_confirmation = options.prune and not options.confirmed and len(stored) >= MIN_DOCUMENTS_FOR_SHARE
        if needs_confirmation and len(delta.deleted) > self._sync.delete_share * len(stored):
            raise ConfirmationError(
                f"this would delete {len(delta.deleted)} of the {len(stored)} stored documents of {source.uri}, more "
                f"than {self._sync.delete_share:.0%} of the source; pass --yes to confirm, or --no-prune to keep them"
            )
        return delta

    def _list_entries(self, source: Source) -> Iterator[Entry]:
        """Yields the entries of a source. Raises LimitError if the sources have more than `max_documents` together."""
        limit = self._sync.max_documents
        for entry in source.listing():
            self._check_listing()
            self._listed += 1
            if limit and self._listed > limit:
                raise LimitError(
                    f"a queued job must have at most {limit} documents (ingestion.queued_documents); its sources have "
                    f"more: split them, or use `rag ingest`"
                )
            yield entry

    def _is_partial(self, id: int) -> bool:
        return self._sources[id].uri in self._sync.partial_uris

    def _list_items(self, delta: Delta) -> list[tuple[UUID, str, Action]]:
        """The ledger's items of a delta: document id, uri, action."""
        deleted = delta.deleted if self._sync.options.should_prune else ()
        return [
            *((self._document_id(entry.uri), entry.uri, "add") for entry in delta.added),
            *((stored.id, entry.uri, "change") for entry, stored in delta.changed),
            *((stored.id, stored.entry.uri, "change") for stored, _ in delta.regrouped),
            *((document.id, document.entry.uri, "delete") for document in deleted),
        ]

    def _build_drafts(self, source: int, delta: Delta) -> list[Draft]:
        added = [self._build_draft(source, entry, self._document_id(entry.uri)) for entry in delta.added]
        return added + [self._build_draft(source, entry, stored.id, stored) for entry, stored in delta.changed]

    def _build_draft(self, source: int, entry: Entry, id: UUID, stored: StoredDocument | None = None) -> Draft:
        recipe = self._sync.recipe.recompute(stored) if stored else self._sync.recipe.fingerprint(entry.uri)
        must_process = id in self._damaged or entry.uri in self._sync.options.only
        is_current = stored is not None and not is_outdated(stored, recipe) and not stored.can_be_retried
        known_sha256 = stored.sha256 if stored and is_current and not must_process else b""
        released = stored.released if stored else b""
        return Draft(
            id=id,
            source=source,
            entry=entry,
            recipe=recipe,
            known_sha256=known_sha256,
            released=released,
            access=self._sync.access.find_stored_groups(entry, stored),
        )

    def _document_id(self, uri: str) -> UUID:
        return document_id(self._sync.tenant, self._sync.collection, uri)

    def _maintain(self, work: Callable[[Maintenance, Postgres, str, int], object]) -> list[str]:
        """Runs maintenance; returns its failure as a notice. Searches are correct without an index, only slower.

        Raises StoreError only if the store is unavailable.
        """
        started = time.perf_counter()
        try:
            work(self._sync.maintenance, self._sync.postgres, self._sync.tenant, self._collection.id)
        except StoreError as error:
            if self._ledger.is_disconnected():
                raise
            return [str(error)]
        finally:
            self._index_seconds += time.perf_counter() - started
        return []

    def _analyze(self) -> None:
        """Updates the statistics. A failure only makes searches slower for a while; the end of the sync reports it."""
        with suppress(StoreError):
            self._sync.maintenance.analyze(self._sync.postgres, self._sync.tenant, self._collection.id)

    def _move_to_space(self, space: int) -> list[str]:
        """Makes searches use the space of this sync; returns a notice if some documents have no vectors in it."""
        if self._collection.space == space:
            return []
        if self._catalog.move_to_space(self._collection.id, space):
            # the index of the former space is removed with its vectors
            return self._maintain(Maintenance.run) if self._collection.space else []
        return [
            f"collection {self._sync.collection!r} is still searched with its former embedding model, because some of "
            f"its documents have no vector of {self._sync.recipe.space.model}; ingest it again"
        ]


def sort_by_file(drafts: Sequence[Draft]) -> list[Draft]:
    """The members of a container together, so that it is opened once, and the largest documents first.

    The end of a run does not wait for a single large document then.
    """
    groups: dict[str, list[Draft]] = {}
    for draft in drafts:
        groups.setdefault(file_uri(draft.entry.uri), []).append(draft)
    by_size = sorted(groups.values(), key=lambda group: -max(draft.entry.size for draft in group))
    return [draft for group in by_size for draft in group]
