"""The difference between a source's listing and the store: a pure function."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from rag_core.ingestion.access import NO_RULES, AccessRules
from rag_core.ingestion.containers.uris import enclosing_uris
from rag_core.ingestion.recipe import is_outdated
from rag_core.types import Entry, StoredDocument

RACY_NS = 20_000_000
"""File systems stamp times in ticks of up to 10 ms: a file can change twice within one, with the same time."""
WHOLE_SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """The entries and documents of one source that a sync has to process.

    Some of `changed` can have the same bytes as before, which only reading them shows. `same` counts the documents that
    need no reading; `failed` counts those of them that failed when they were last read. `regrouped` has the others that
    need no reading, with the groups that can read them now: those differ from the stored ones.
    """

    added: tuple[Entry, ...]
    changed: tuple[tuple[Entry, StoredDocument], ...]
    deleted: tuple[StoredDocument, ...]
    same: int
    failed: int
    regrouped: tuple[tuple[StoredDocument, tuple[str, ...]], ...] = ()

    @property
    def bytes(self) -> int:
        """The size of the added and the changed entries."""
        return sum(entry.size for entry in self.added) + sum(entry.size for entry, _ in self.changed)


def compute_delta(
    listed: Iterable[Entry],
    stored: Mapping[str, StoredDocument],
    compute_recipe: Callable[[StoredDocument], str],
    checksum: bool = False,
    damaged: Collection[UUID] = (),
    access: AccessRules = NO_RULES,
) -> Delta:
    """Compares the entries of a source with its stored documents, by uri.

    `compute_recipe` returns the present recipe of a stored document. `checksum` makes all stored documents count as
    changed, so that they are read and compared. `damaged` holds the stored documents that have lost rows: they count as
    changed.

    A container is listed itself only if its members cannot be listed now: they are not deleted.
    """
    entries = {entry.uri: entry for entry in listed}
    pairs = {uri: (entry, stored[uri]) for uri, entry in entries.items() if uri in stored}
    changed = {
        uri: (entry, document)
        for uri, (entry, document) in pairs.items()
        if checksum or document.id in damaged or _needs_reading(entry, document, compute_recipe(document))
    }
    unread = {uri: pair for uri, pair in pairs.items() if uri not in changed}
    groups = {uri: access.find_stored_groups(entry, document) for uri, (entry, document) in unread.items()}
    same = [document for uri, (_, document) in unread.items() if groups[uri] == document.access]
    return Delta(
        added=tuple(entry for uri, entry in entries.items() if uri not in stored),
        changed=tuple(changed.values()),
        deleted=tuple(
            document
            for uri, document in stored.items()
            if uri not in entries and not any(container in entries for container in enclosing_uris(uri))
        ),
        same=len(same),
        failed=sum(document.status == "failed" for document in same),
        regrouped=tuple(
            (document, groups[uri]) for uri, (_, document) in unread.items() if groups[uri] != document.access
        ),
    )


def _needs_reading(entry: Entry, document: StoredDocument, recipe: str) -> bool:
    written = max(entry.modified_ns, entry.changed_ns)
    # whole seconds come from systems that store no finer times
    tick = WHOLE_SECOND_NS if written % WHOLE_SECOND_NS == 0 else RACY_NS
    return (
        entry != document.entry
        or is_outdated(document, recipe)
        or document.can_be_retried
        # plain HTTP reports none of these: only reading shows a change
        or not (entry.modified_ns or entry.changed_ns or entry.etag)
        # git's rule for racy files: one written during its last listing, or after, can have changed undetected
        or written + tick > document.listed_ns
    )
