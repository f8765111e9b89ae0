"""What has to be done so that the store is in step with a listing: a pure function."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from rag_core.ingestion.recipe import outdated
from rag_core.types import Entry, StoredDocument

RACY_NS = 20_000_000
"""File systems stamp times in ticks of up to 10 ms: what was written within one may change again and look the same."""
WHOLE_SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """`changed` may turn out to hold the same bytes: only reading tells. `same` counts what needs no look at all,
    `failed` those of it that failed when they were last read."""

    added: tuple[Entry, ...]
    changed: tuple[tuple[Entry, StoredDocument], ...]
    deleted: tuple[StoredDocument, ...]
    same: int
    failed: int

    @property
    def empty(self) -> bool:
        return not (self.added or self.changed or self.deleted)

    @property
    def bytes(self) -> int:
        return sum(entry.size for entry in self.added) + sum(entry.size for entry, _ in self.changed)


def delta(
    listed: Iterable[Entry],
    stored: Mapping[str, StoredDocument],
    recipe: Callable[[str], str],
    checksum: bool = False,
    damaged: Collection[UUID] = (),
) -> Delta:
    """`listed` and `stored` are of one source, `stored` by uri; `recipe` tells how an uri would be read today.

    `checksum` calls everything that is stored changed, so that it is read and compared; `damaged` are the stored
    documents that have lost rows, and so have to be done again.
    """
    entries = {entry.uri: entry for entry in listed}
    known = {uri: (entry, stored[uri]) for uri, entry in entries.items() if uri in stored}
    changed = {
        uri: (entry, document)
        for uri, (entry, document) in known.items()
        if checksum or document.id in damaged or _differs(entry, document, recipe)
    }
    same = [document for uri, (_, document) in known.items() if uri not in changed]
    return Delta(
        added=tuple(entry for uri, entry in entries.items() if uri not in stored),
        changed=tuple(changed.values()),
        deleted=tuple(document for uri, document in stored.items() if uri not in entries),
        same=len(same),
        failed=sum(document.status == "failed" for document in same),
    )


def _differs(entry: Entry, document: StoredDocument, recipe: Callable[[str], str]) -> bool:
    return (
        entry != document.entry
        or outdated(document, recipe(entry.uri))
        or document.can_be_retried
        or not (entry.modified_ns or entry.changed_ns or entry.etag)  # as of plain HTTP: only reading tells
        or _racy(entry, document.listed_ns)
    )


def _racy(entry: Entry, listed_ns: int) -> bool:
    """Git's rule: what was written while, or after, it was last listed may have changed without a trace.
    Times in whole seconds come from systems that keep no finer ones."""
    written = max(entry.modified_ns, entry.changed_ns)
    tick = WHOLE_SECOND_NS if written % WHOLE_SECOND_NS == 0 else RACY_NS
    return written + tick > listed_ns
