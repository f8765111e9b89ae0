"""Small file trees, ingested with the hashing embedder, and their stored documents."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray
from psycopg.rows import dict_row

from rag_core.config import Settings
from rag_core.ingestion.report import SyncReport
from rag_core.ingestion.sync import DEFAULT_OPTIONS, SyncOptions
from rag_core.settings import load_settings
from rag_core.storage.fsck import Violation, find_violations
from rag_core.storage.postgres import Postgres
from rag_core.types import DEFAULT_COLLECTION
from rag_core.wiring.ingestion import build_inline_runner, build_sync

HASHING = ("embedding.type=hashing", "embedding.dimension=64", "chunking.tokens=24", "chunking.overlap=0")
DOCUMENTS = """
select d.id, d.uri, d.status, d.reason, d.title, d.media_type, d.language, d.metadata, d.n_chunks, d.sha256,
  d.modified_ns, t.text
from documents d join collections c on c.tenant = d.tenant and c.id = d.collection
left join document_texts t on t.tenant = d.tenant and t.collection = d.collection and t.document_id = d.id
where c.name = %(collection)s order by d.uri"""
CHUNKS = """
select k.id, k.document_id, k.ordinal, k.start_offset, k.end_offset, k.prefix, k.text, k.metadata,
  v.embedding::real[] as vector
from chunks k join collections c on c.tenant = k.tenant and c.id = k.collection
left join vectors v on v.tenant = k.tenant and v.collection = k.collection and v.chunk_id = k.id and v.space = c.space
where c.name = %(collection)s order by k.document_id, k.ordinal"""
VALUES = """
select f.document_id, f.key, f.text_value, f.number_value
from document_values f join collections c on c.tenant = f.tenant and c.id = f.collection
where c.name = %(collection)s order by f.document_id, f.key, f.text_value, f.number_value"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTree:
    """The stored documents of a collection, by uri.

    `documents` and `chunks` are without ids; `ids` has those of the chunks. `chunks` are in order. `vectors` has one
    row per chunk. `values` are the values that filters compare.
    """

    documents: Mapping[str, Mapping[str, Any]]
    chunks: Mapping[str, Sequence[Mapping[str, Any]]]
    ids: Mapping[str, Sequence[UUID]]
    vectors: Mapping[str, NDArray[np.float32]]
    values: Mapping[str, Sequence[tuple[Any, ...]]]

    def statuses(self) -> dict[str, str]:
        """The status of each document, by file name."""
        return {uri.rpartition("/")[2]: document["status"] for uri, document in self.documents.items()}

    def texts(self, name: str) -> list[str]:
        return [chunk["text"] for chunk in self.chunks[self.uri(name)]]

    def uri(self, name: str) -> str:
        (uri,) = (uri for uri in self.documents if uri.rpartition("/")[2] == name)
        return uri


def hashing_settings(*overrides: str) -> Settings:
    return load_settings(overrides=[*HASHING, *overrides], environment={})


def write(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def ingest(
    store: Postgres,
    *folders: Path,
    collection: str = DEFAULT_COLLECTION,
    settings: Settings | None = None,
    options: SyncOptions = DEFAULT_OPTIONS,
) -> SyncReport:
    """Ingests the folders in this process, and asserts that the store's invariants hold."""
    settings = settings or hashing_settings()
    report = build_sync(settings, store, [str(folder) for folder in folders], collection, options).run(
        build_inline_runner(settings)
    )
    assert violations(store) == []
    return report


def violations(store: Postgres) -> list[Violation]:
    with store.connect("rag_worker") as connection:
        return find_violations(connection)


def read_tree(store: Postgres, collection: str = DEFAULT_COLLECTION) -> StoredTree:
    with store.connect("rag_worker") as connection, connection.cursor(row_factory=dict_row) as cursor:
        parameters = {"collection": collection}
        documents = cursor.execute(DOCUMENTS, parameters).fetchall()
        chunks = cursor.execute(CHUNKS, parameters).fetchall()
        values = cursor.execute(VALUES, parameters).fetchall()
    uris = {document.pop("id"): document["uri"] for document in documents}

    def rows_of(rows: Sequence[dict[str, Any]], id: UUID) -> list[dict[str, Any]]:
        return [row for row in rows if row["document_id"] == id]

    columns = ("ordinal", "start_offset", "end_offset", "prefix", "text", "metadata")
    value_columns = ("key", "text_value", "number_value")
    return StoredTree(
        documents={document["uri"]: document for document in documents},
        chunks={
            uri: [{column: row[column] for column in columns} for row in rows_of(chunks, id)]
            for id, uri in uris.items()
        },
        ids={uri: [row["id"] for row in rows_of(chunks, id)] for id, uri in uris.items()},
        vectors={uri: np.array([row["vector"] for row in rows_of(chunks, id)], np.float32) for id, uri in uris.items()},
        values={
            uri: [tuple(row[column] for column in value_columns) for row in rows_of(values, id)]
            for id, uri in uris.items()
        },
    )


def assert_same(one: StoredTree, other: StoredTree) -> None:
    """Asserts equal trees, except for ids, which depend on the collection's name. Vectors have half precision."""
    assert one.documents == other.documents
    assert one.chunks == other.chunks
    assert one.values == other.values
    for uri, rows in one.vectors.items():
        cosines = (rows * other.vectors[uri]).sum(axis=-1) if len(rows) else np.ones(0)
        assert (cosines > 1 - 1e-3).all(), uri


def assert_identical(one: StoredTree, other: StoredTree) -> None:
    """Asserts equal trees and ids: of two collections with the same name and files."""
    assert_same(one, other)
    assert one.ids == other.ids
