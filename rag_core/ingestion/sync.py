"""Brings a collection in step with its sources: list, compare, do what is needed, account for it."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from uuid import UUID

from rag_core.errors import BusyError, ConfirmationError, RagError, SpaceError, StoreError
from rag_core.ingestion.background import now_and_then
from rag_core.ingestion.delta import Delta, delta
from rag_core.ingestion.recipe import Recipe, outdated
from rag_core.ingestion.report import Plan, Report, RunTimes, chunk_counts, document_counts, stage_seconds
from rag_core.protocols import Source
from rag_core.storage.catalog import Catalog, Collection, KnownSource
from rag_core.storage.ledger import NO_JOB, Action, Job, Ledger, fenced
from rag_core.storage.maintenance import Maintenance
from rag_core.storage.postgres import Postgres, while_away
from rag_core.storage.publishing import Target
from rag_core.types import Draft, Entry, StoredDocument, document_id

DELETED_AT_ONCE = 1_000
SHARE_MATTERS_FROM = 4
"""Below so many stored documents of a source, any share of them may go without asking."""
ANALYZE_AFTER = 2.0
"""Seconds of a load, and then again after waits that double: filtered searches beside it are planned by what is stored
by then."""


class Runner(Protocol):
    def run(self, target: Target, sources: Mapping[int, Source], drafts: Sequence[Draft]) -> RunTimes:
        """Every draft through all stages into the store. What fails is published as failed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`prune`: delete what is absent from a complete listing. `confirmed`: also when it is a large share of it.
    `checksum`: read everything, however unchanged it looks. `only`: just these uris, and again whatever they hold;
    nothing is deleted then."""

    prune: bool = True
    confirmed: bool = False
    checksum: bool = False
    only: frozenset[str] = frozenset()

    @property
    def prunes(self) -> bool:
        return self.prune and not self.only


DEFAULT_OPTIONS = Options()
DEFAULT_MAINTENANCE = Maintenance()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """One sync of one collection. `settings` are kept with the job as they are now; `splade` is as `Target` has it.

    `partial` are the uris of sources that list only some of their documents: of these nothing is deleted. `job` and
    `fence` are those of a job that was queued, and is leased to this process; without them the sync makes its own.
    """

    postgres: Postgres
    tenant: str
    collection: str
    sources: Sequence[Source]
    recipe: Recipe
    profile: str = "default"
    settings: Mapping[str, Any] = field(default_factory=dict)
    delete_share: float = 0.5
    patience: float = 60.0
    graph: bool = False
    splade: str = ""
    options: Options = DEFAULT_OPTIONS
    maintenance: Maintenance = DEFAULT_MAINTENANCE
    partial: frozenset[str] = frozenset()
    job: UUID = NO_JOB
    fence: int = 0

    @property
    def queued(self) -> bool:
        return self.job != NO_JOB

    def plan(self) -> Plan:
        """What `run` would do; nothing is written."""
        with self.postgres.connect() as connection:
            catalog = Catalog(connection, self.tenant)
            changes = [
                delta(
                    source.listing(),
                    catalog.manifest_of(self.collection, source.uri),
                    self.recipe.of,
                    self.options.checksum,
                )
                for source in self.sources
            ]
        return Plan.of(self.collection, changes, self.options.prunes)

    def run(self, runner: Runner, tell: Callable[[UUID, Plan], None] | None = None) -> Report:
        """`tell` gets the job's id when it begins. ConfirmationError, BusyError and ListingError change no document.

        A job that was queued, and fails, is left to whom it is leased to: it may be tried again.
        """
        with closing(_Run(self)) as run:
            changes = run.prepare()
            plan = Plan.of(self.collection, list(changes.values()), self.options.prunes)
            target = run.begin(changes, plan)
            try:
                if tell:
                    tell(target.job, plan)
                times = run.work(runner, target, changes)
                return run.finish(target, plan, times)
            except BaseException as error:
                run.abandon(target, error)
                raise


class _Run:
    """The steps of a sync, in their order. Its sources are claimed for as long as the connection lives."""

    _collection: Collection
    _space: int
    _job: Job

    def __init__(self, sync: Sync) -> None:
        self._began, self._listed_ns = time.perf_counter(), time.time_ns()
        self._sync = sync
        self._connect()
        self._sources: dict[int, Source] = {}
        self._damaged: frozenset[UUID] = frozenset()
        self._listing = self._indexing = 0.0

    def prepare(self) -> dict[int, Delta]:
        """What has to be done, by source. When it raises, a collection and sources that were new are gone again."""
        self._collection = self._catalog.ensure_collection(self._sync.collection)
        self._space = self._catalog.ensure_space(self._sync.recipe.space)
        self._claim()
        try:
            if self._sync.queued:
                self._ledger.start(self._sync.job, self._sync.fence)
            self._refuse_partial_move()
            changes = {id: self._change(id, source) for id, source in self._sources.items()}
        except RagError:
            self._catalog.discard_unused(self._collection.id, list(self._sources))
            raise
        self._listing = time.perf_counter() - self._began
        return changes

    def begin(self, changes: Mapping[int, Delta], plan: Plan) -> Target:
        sync, collection = self._sync, self._collection.id
        job = self._job = self._begun(changes, plan)
        return Target(
            postgres=sync.postgres,
            tenant=sync.tenant,
            collection=collection,
            space=self._space,
            job=job.id,
            run=job.run,
            listed_ns=self._listed_ns,
            fence=job.fence,
            patience=sync.patience,
            graph=sync.graph,
            splade=sync.splade,
        )

    def _begun(self, changes: Mapping[int, Delta], plan: Plan) -> Job:
        sync, collection = self._sync, self._collection.id
        items = [item for change in changes.values() for item in self._items(change)]
        if not sync.queued:
            return self._ledger.begin(collection, list(changes), sync.profile, sync.settings, plan.same, items)
        listed = [id for id in changes if not self._is_partial(id)]
        return self._ledger.take_over(sync.job, sync.fence, collection, list(changes), listed, plan.same, items)

    def work(self, runner: Runner, target: Target, changes: Mapping[int, Delta]) -> RunTimes:
        planned = [draft for source, change in changes.items() for draft in self._drafts(source, change)]
        drafts = [draft for draft in planned if draft.id not in self._job.ended]
        # the largest first, so that no large document is what everybody waits for at the end
        drafts.sort(key=lambda draft: -draft.entry.size)
        new = sum(self._new(change) for change in changes.values())
        self._maintained(lambda maintenance, *place: maintenance.make_way(*place, target.space, new))
        with now_and_then(self._analyze, ANALYZE_AFTER, self._sync.patience):
            times = runner.run(target, self._sources, drafts) if drafts else RunTimes()
        if self._sync.options.prunes:
            gone = [document.id for change in changes.values() for document in change.deleted]
            _delete(target, [id for id in gone if id not in self._job.ended])
        return times

    def finish(self, target: Target, plan: Plan, times: RunTimes) -> Report:
        self._hold_on()
        if self._sync.queued:
            self._ledger.next_stage(target.job, target.fence, "finishing")
        if not self._sync.options.only:
            self._catalog.listed(self._collection.id, list(self._sources), self._listed_ns)
        notices = [*self._maintained(Maintenance.run), *self._searched_in(target.space), *_still_failed(plan)]
        stages, total = self._ledger.stage_seconds(target.job), time.perf_counter() - self._began
        seconds = stage_seconds(stages, replace(times, index=self._indexing), self._listing, total)
        if not self._ledger.end(target.job, "completed", seconds=seconds, fence=target.fence):
            raise fenced(target.job)
        done = self._ledger.progress(target.job)
        return Report(
            job_id=target.job,
            collection=self._sync.collection,
            documents=document_counts(plan, done),
            chunks=chunk_counts(self._catalog.chunk_count(self._sync.collection), done),
            seconds=seconds,
            failures=self._ledger.failures(target.job, "failed"),
            skipped=self._ledger.failures(target.job, "skipped"),
            quarantined=self._ledger.failures(target.job, "quarantined"),
            notices=notices,
        )

    def abandon(self, target: Target, error: BaseException) -> None:
        if self._sync.queued:
            return
        interrupted = isinstance(error, KeyboardInterrupt)
        reason = "interrupted" if interrupted else f"{type(error).__name__}: {error}"
        with suppress(StoreError):  # the next job on these sources will find it abandoned
            self._ledger.end(target.job, "cancelled" if interrupted else "failed", reason)

    def close(self) -> None:
        self._ledger.close()
        self._connection.close()

    def _connect(self) -> None:
        self._connection = self._sync.postgres.connect()
        self._catalog = Catalog(self._connection, self._sync.tenant)
        self._ledger = Ledger(self._connection, self._sync.tenant)

    def _hold_on(self) -> None:
        """On a new connection if the store was away while the writers wrote, who waited for it as long."""
        if not self._ledger.lost():
            return
        for attempt in while_away(self._sync.patience, StoreError, BusyError):
            with attempt:
                self._connection.close()
                self._connect()
                self._ledger.reclaim(self._collection.id, list(self._sources))

    def _claim(self) -> None:
        ids = self._catalog.ensure_sources(self._collection, [source.uri for source in self._sync.sources])
        self._sources = dict(zip(ids, self._sync.sources, strict=True))
        self._ledger.claim(self._collection.id, ids, self._sync.job)
        if self._collection.space is not None:
            among = self._listed_ids() if all(map(self._is_partial, ids)) else None
            self._damaged = self._catalog.damaged(self._collection.id, self._collection.space, self._sync.splade, among)

    def _listed_ids(self) -> list[UUID]:
        return [self._id(entry.uri) for source in self._sources.values() for entry in source.listing()]

    def _refuse_partial_move(self) -> None:
        """A document that changes while half of a collection is in another space would be found in neither."""
        if self._collection.space in (None, self._space):
            return
        known = self._catalog.sources(self._collection.name)
        if left := [each.uri for each in known if each.documents > self._moved(each)]:
            uris = " ".join(sorted(left))
            raise SpaceError(
                f"collection {self._collection.name!r} is embedded with another model than "
                f"{self._sync.recipe.space.model}: to move it, ingest all its sources in one command; missing: {uris}"
            )

    def _moved(self, known: KnownSource) -> int:
        """How many of the stored documents of a source this sync brings along, if it has to do with it at all."""
        if known.id not in self._sources:
            return 0
        return (
            len(self._known_of(known.id, self._sources[known.id].listing()))
            if self._is_partial(known.id)
            else known.documents
        )

    def _known_of(self, id: int, entries: Iterable[Entry]) -> dict[str, StoredDocument]:
        ids = [self._id(entry.uri) for entry in entries]
        return self._catalog.some_of_manifest(self._collection.id, id, ids)

    def _change(self, id: int, source: Source) -> Delta:
        if self._is_partial(id):
            entries = list(source.listing())
            return delta(entries, self._known_of(id, entries), self._sync.recipe.of, damaged=self._damaged)
        options = self._sync.options
        stored = self._catalog.manifest(self._collection.id, id)
        if options.only:
            again = frozenset(document.id for uri, document in stored.items() if uri in options.only)
            listed = [entry for entry in source.listing() if entry.uri in options.only]
            return delta(listed, stored, self._sync.recipe.of, damaged=again)
        change = delta(source.listing(), stored, self._sync.recipe.of, options.checksum, self._damaged)
        if options.prune and not options.confirmed:
            self._confirm(source.uri, len(change.deleted), len(stored))
        return change

    def _is_partial(self, id: int) -> bool:
        return self._sources[id].uri in self._sync.partial

    def _confirm(self, uri: str, deleted: int, stored: int) -> None:
        share = self._sync.delete_share
        if stored >= SHARE_MATTERS_FROM and deleted > share * stored:
            raise ConfirmationError(
                f"{deleted} of the {stored} documents stored of {uri} are no longer there. Deleting more than "
                f"{share:.0%} of a source wants a yes: add --yes, or --no-prune to keep them"
            )

    def _new(self, change: Delta) -> int:
        """Documents of which hardly a vector is stored: those that were only touched add none to an index."""
        anew = sum(outdated(stored, self._sync.recipe.of(entry.uri)) for entry, stored in change.changed)
        return len(change.added) + anew

    def _items(self, change: Delta) -> list[tuple[UUID, str, Action]]:
        deleted = change.deleted if self._sync.options.prunes else ()
        return [
            *((self._id(entry.uri), entry.uri, "add") for entry in change.added),
            *((stored.id, entry.uri, "change") for entry, stored in change.changed),
            *((gone.id, gone.entry.uri, "delete") for gone in deleted),
        ]

    def _drafts(self, source: int, change: Delta) -> list[Draft]:
        added = [self._draft(source, entry, self._id(entry.uri)) for entry in change.added]
        return added + [self._draft(source, entry, stored.id, stored) for entry, stored in change.changed]

    def _draft(self, source: int, entry: Entry, id: UUID, stored: StoredDocument | None = None) -> Draft:
        recipe = self._sync.recipe.of(entry.uri)
        again = id in self._damaged or entry.uri in self._sync.options.only
        trusted = stored is not None and not outdated(stored, recipe) and not stored.can_be_retried and not again
        known = stored.sha256 if stored and trusted else b""
        released = stored.released if stored else b""
        return Draft(id=id, source=source, entry=entry, recipe=recipe, known_sha256=known, released=released)

    def _id(self, uri: str) -> UUID:
        return document_id(self._sync.tenant, self._sync.collection, uri)

    def _maintained(self, work: Callable[[Maintenance, Postgres, str, int], object]) -> list[str]:
        """What could not be done. Searches are right without an index, only slower."""
        began = time.perf_counter()
        try:
            work(self._sync.maintenance, self._sync.postgres, self._sync.tenant, self._collection.id)
        except StoreError as error:
            return [str(error)]
        finally:
            self._indexing += time.perf_counter() - began
        return []

    def _analyze(self) -> None:
        """Whoever searches meanwhile is only slower where it cannot be done; the sync's end will tell why."""
        with suppress(StoreError):
            self._sync.maintenance.analyze(self._sync.postgres, self._sync.tenant, self._collection.id)

    def _searched_in(self, space: int) -> list[str]:
        if self._collection.space == space:
            return []
        if self._catalog.move_to_space(self._collection.id, space):
            # the index of the space it leaves goes with its vectors
            return self._maintained(Maintenance.run) if self._collection.space else []
        return [
            f"collection {self._sync.collection!r} is still searched with its former embedding model: not every "
            f"document has a vector of {self._sync.recipe.space.model} yet; ingest it again"
        ]


def _still_failed(plan: Plan) -> list[str]:
    if not plan.failed:
        return []
    return [
        f"{plan.failed} of the documents that are unchanged failed before, and are not tried again: "
        f"rag documents list --collection {plan.collection} --status failed"
    ]


def _delete(target: Target, documents: Sequence[UUID]) -> None:
    if not documents:
        return
    with closing(target.open()) as writer:
        for first in range(0, len(documents), DELETED_AT_ONCE):
            writer.delete(documents[first : first + DELETED_AT_ONCE])
