"""Samples of a source's listing, which show whether several nodes see the same files."""

from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice

from rag_core.ingestion.sources.files import FilesSource
from rag_core.ingestion.sources.json_lines import JsonLinesSource
from rag_core.protocols import Source
from rag_core.storage.queue import JSON_LINES_SCHEME

SAMPLE_ENTRIES = 1000
"""The number of entries that a sample has, from the first of the listing."""
NS_PER_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Sample:
    """The number of listed entries, and a hash of their names, sizes and, for local files, times."""

    entries: int
    digest: str


def is_local(source: Source) -> bool:
    return source.uri.removeprefix(JSON_LINES_SCHEME).startswith("file:")


def take_sample(source: Source, limit: int = SAMPLE_ENTRIES) -> Sample:
    """Lists up to `limit` entries, and reads no file except containers. Raises ListingError.

    Times are compared in whole seconds, because some file systems for networks have no finer ones. Inodes are not
    compared, because those of FUSE differ between mounts.
    """
    files = source.file if isinstance(source, JsonLinesSource) else source
    with_times = is_local(files) and isinstance(files, FilesSource)
    digest, entries = blake2b(digest_size=16), 0
    for entry in islice(files.listing(), limit):
        seconds = entry.modified_ns // NS_PER_SECOND if with_times and entry.modified_ns else 0
        digest.update(f"{entry.uri}\0{entry.size}\0{seconds}\n".encode())
        entries += 1
    return Sample(entries, digest.hexdigest())
