"""The documents that a request uploaded, as a source. The store holds their bytes until they have been ingested."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from urllib.parse import quote
from uuid import UUID

from rag_core.errors import DocumentError, StoreError, TransientError
from rag_core.parsing.compression import strip_gz_suffix
from rag_core.parsing.detection import SUFFIXES, suffix_of
from rag_core.parsing.media_types import SUFFIXES_BY_MEDIA_TYPE
from rag_core.storage.postgres import Postgres
from rag_core.storage.queue import PUSHED_URI, PushedRecord, list_pushed_documents, load_pushed_bodies
from rag_core.types import Document, Entry

PLAIN_TEXT = "text/plain"
BLOCK_BYTES, BLOCK_DOCUMENTS = 1 << 20, 128


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedSource:
    """The pushed documents of one job, by uri. Its listing is partial: the store has more documents of this source.

    `blocks` holds, for each id, the ids whose bytes are fetched together with its own. For small documents, the round
    trip takes longer than the reading.
    """

    postgres: Postgres
    tenant: str
    job: UUID
    file_mb: float
    documents: Mapping[str, PushedRecord]
    blocks: Mapping[str, tuple[str, ...]]

    @classmethod
    def open(cls, postgres: Postgres, tenant: str, job: UUID, file_mb: float) -> "PushedSource":
        documents = list_pushed_documents(postgres, tenant, job)
        return cls(
            postgres=postgres,
            tenant=tenant,
            job=job,
            file_mb=file_mb,
            documents={pushed.uri: pushed for pushed in documents},
            blocks={id: ids for ids in _split_into_blocks(documents) for id in ids},
        )

    @property
    def uri(self) -> str:
        return PUSHED_URI

    def listing(self) -> Iterator[Entry]:
        """Yields every document. Its time of modification is that of the push."""
        for pushed in self.documents.values():
            modified_ns = int(pushed.pushed_at.timestamp() * 1e6) * 1000
            access = None if pushed.access is None else tuple(pushed.access)
            yield Entry(uri=pushed.uri, size=pushed.size, modified_ns=modified_ns, etag=pushed.sha256, access=access)

    def read(self, entry: Entry) -> bytes:
        if entry.size > self.file_mb * 1e6:
            raise DocumentError("read", f"too large: {entry.size / 1e6:.1f} MB, limit {self.file_mb:g} MB")
        id = self.documents[entry.uri].id
        ids = self.blocks[id]
        load_bodies = _load_cached_bodies if len(ids) > 1 else load_pushed_bodies
        try:
            body = load_bodies(self.postgres, self.tenant, self.job, ids).get(id)
        except StoreError as error:
            raise TransientError("read", str(error), True) from error
        if body is None:
            raise DocumentError("read", "its bytes are no longer stored: push it again")
        return body


_load_cached_bodies = lru_cache(maxsize=4)(load_pushed_bodies)
"""Caches the last few blocks: concurrent readers are in the same ones."""


def _split_into_blocks(documents: Sequence[PushedRecord]) -> Iterator[tuple[str, ...]]:
    """Yields blocks of ids, in the order in which a job reads: the largest documents first."""
    block: list[str] = []
    size = 0
    for pushed in sorted(documents, key=lambda document: -document.size):
        if block and (size + pushed.size > BLOCK_BYTES or len(block) == BLOCK_DOCUMENTS):
            yield tuple(block)
            block, size = [], 0
        block.append(pushed.id)
        size += pushed.size
    if block:
        yield tuple(block)


def parser_uri(pushed: PushedRecord) -> str:
    """A uri for the parser, whose suffix names the format.

    The suffix follows from the media type. If that is unknown or plain text, the id's own suffix decides, if it is a
    known one.
    """
    # an id can be a path or a uri; its last part is kept, because a document without a title is named after it
    name = pushed.id.rstrip("/").rpartition("/")[2] or pushed.id
    uri = PUSHED_URI + (name if "://" in pushed.id else quote(name, safe=""))
    suffix = SUFFIXES_BY_MEDIA_TYPE.get(pushed.media_type.partition(";")[0].strip().lower(), "")
    is_known = SUFFIXES.get(suffix_of(strip_gz_suffix(uri)), "")
    return uri if is_known and suffix in ("", SUFFIXES_BY_MEDIA_TYPE[PLAIN_TEXT]) else uri + suffix


def with_pushed_metadata(pushed: PushedRecord, document: Document) -> Document:
    """Adds the title and the metadata of the request, which take precedence over those in the document.

    Citations link to `url`, so only the request can set it.
    """
    parsed = {key: value for key, value in document.metadata.items() if key != "url"}
    metadata = {**parsed, **pushed.metadata, **({"url": pushed.url} if pushed.url else {})}
    return replace(document, uri=pushed.uri, title=pushed.title or document.title, metadata=metadata)


def pushed_fingerprint(pushed: PushedRecord) -> str:
    """A hash of the media type, the title, the url and the metadata in the request."""
    fields = json.dumps([pushed.media_type, pushed.title, pushed.url, dict(pushed.metadata)], sort_keys=True)
    return blake2b(fields.encode(), digest_size=8).hexdigest()
