"""Documents that came with a request, as a source: their bytes are in the store until they have been ingested."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from urllib.parse import quote
from uuid import UUID

from rag_core.errors import DocumentError, StoreError, TransientError
from rag_core.parsing.compression import inner
from rag_core.parsing.detection import SUFFIXES, suffix_of
from rag_core.storage.postgres import Postgres
from rag_core.storage.queue import PUSHED, Pushed, pushed_bodies, pushed_documents
from rag_core.types import Document, Entry

SUFFIX_OF = {
    "text/plain": ".txt",
    "text/markdown": ".md",
    "text/html": ".html",
    "application/xhtml+xml": ".html",
    "text/asciidoc": ".adoc",
    "text/csv": ".csv",
    "text/tab-separated-values": ".tsv",
    "application/json": ".json",
    "application/x-ndjson": ".jsonl",
    "application/xml": ".xml",
    "text/xml": ".xml",
    "application/pdf": ".pdf",
    "application/rtf": ".rtf",
    "text/rtf": ".rtf",
    "application/epub+zip": ".epub",
    "message/rfc822": ".eml",
    "application/msword": ".doc",
    "application/vnd.ms-excel": ".xls",
    "application/vnd.ms-powerpoint": ".ppt",
    "application/vnd.ms-outlook": ".msg",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": ".docx",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": ".pptx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": ".xlsx",
    "application/vnd.oasis.opendocument.text": ".odt",
    "application/vnd.oasis.opendocument.spreadsheet": ".ods",
    "application/vnd.oasis.opendocument.presentation": ".odp",
}
PLAIN = "text/plain"
BLOCK_BYTES, BLOCK_DOCUMENTS = 1 << 20, 128


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedSource:
    """Those of one job, by uri. Its listing is never all that the store has of this source.

    `together` are the ids, by id, of those whose bytes are fetched with its own: for small ones the way is longer than
    the reading.
    """

    postgres: Postgres
    tenant: str
    job: UUID
    file_mb: float
    documents: Mapping[str, Pushed]
    together: Mapping[str, tuple[str, ...]]

    @classmethod
    def open(cls, postgres: Postgres, tenant: str, job: UUID, file_mb: float) -> "PushedSource":
        documents = pushed_documents(postgres, tenant, job)
        return cls(
            postgres=postgres,
            tenant=tenant,
            job=job,
            file_mb=file_mb,
            documents={pushed.uri: pushed for pushed in documents},
            together={id: ids for ids in _blocks(documents) for id in ids},
        )

    @property
    def uri(self) -> str:
        return PUSHED

    def listing(self) -> Iterator[Entry]:
        """A document was modified when it was pushed."""
        for pushed in self.documents.values():
            modified_ns = int(pushed.pushed_at.timestamp() * 1e6) * 1000
            yield Entry(uri=pushed.uri, size=pushed.size, modified_ns=modified_ns, etag=pushed.sha256)

    def read(self, entry: Entry) -> bytes:
        if entry.size > self.file_mb * 1e6:
            raise DocumentError("read", f"too large: {entry.size / 1e6:.1f} MB, limit {self.file_mb:g} MB")
        id = self.documents[entry.uri].id
        try:
            body = self._bodies(self.together[id]).get(id)
        except StoreError as error:
            raise TransientError("read", str(error), True) from error
        if body is None:
            raise DocumentError("read", "its bytes are not kept any more: push it again")
        return body

    def _bodies(self, ids: tuple[str, ...]) -> Mapping[str, bytes]:
        fetch = _remembered if len(ids) > 1 else pushed_bodies
        return fetch(self.postgres, self.tenant, self.job, ids)


_remembered = lru_cache(maxsize=4)(pushed_bodies)
"""The last few blocks: readers side by side are in the same ones."""


def _blocks(documents: Sequence[Pushed]) -> Iterator[tuple[str, ...]]:
    """Of ids, in the order in which a job reads: the largest first."""
    block: list[str] = []
    size = 0
    for pushed in sorted(documents, key=lambda each: -each.size):
        if block and (size + pushed.size > BLOCK_BYTES or len(block) == BLOCK_DOCUMENTS):
            yield tuple(block)
            block, size = [], 0
        block.append(pushed.id)
        size += pushed.size
    if block:
        yield tuple(block)


def named(pushed: Pushed) -> str:
    """An uri whose suffix tells the format: as the media type says, or the document's own name where that says no more
    than that it is text, or bytes."""
    uri = PUSHED + _last_part(pushed.id)
    suffix = SUFFIX_OF.get(pushed.media_type.partition(";")[0].strip().lower(), "")
    tells = SUFFIXES.get(suffix_of(inner(uri)), "")
    return uri if tells and suffix in ("", SUFFIX_OF[PLAIN]) else uri + suffix


def _last_part(id: str) -> str:
    """Of an id that is a path or an uri, quoted: a document without a title is named after it."""
    last = id.rstrip("/").rpartition("/")[2] or id
    return last if "://" in id else quote(last, safe="")


def described(pushed: Pushed, document: Document) -> Document:
    """With what the request said of it, which goes before what the document says of itself. Citations lead to `url`:
    only the request says where that is."""
    said = {key: value for key, value in document.metadata.items() if key != "url"}
    about = {**said, **pushed.metadata, **({"url": pushed.url} if pushed.url else {})}
    return replace(document, uri=pushed.uri, title=pushed.title or document.title, metadata=about)


def fingerprint(pushed: Pushed) -> str:
    """Changes with what the request said of the document."""
    said = json.dumps([pushed.media_type, pushed.title, pushed.url, dict(pushed.metadata)], sort_keys=True)
    return blake2b(said.encode(), digest_size=8).hexdigest()
