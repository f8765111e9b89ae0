"""The stored documents, chunks and answer spans of a dataset, by the dataset's ids."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from uuid import UUID

from rag_core.evaluation.dataset import Dataset, id_from_file_name, id_from_stem, read_corpus
from rag_core.evaluation.spans import AnswerCharacters, Span, align_spans, answer_characters
from rag_core.ingestion.sources.local import path_from_uri
from rag_core.storage.catalog import Catalog
from rag_core.storage.postgres import Postgres


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDataset:
    """The stored part of a dataset: the ids of completed `documents`, and the spans of `chunks`."""

    documents: Mapping[str, UUID]
    chunks: Mapping[UUID, Span]


def document_id_from_uri(dataset: Dataset, uri: str) -> str:
    """The dataset's id of a stored document."""
    return (id_from_stem if dataset.corpus.is_dir() else id_from_file_name)(path_from_uri(uri))


def list_uris(dataset: Dataset, collection: str, postgres: Postgres, tenant: str) -> dict[str, str]:
    """The uris of all documents that the store knows, including those that it could not ingest."""
    with postgres.connect() as connection:
        catalog = Catalog(connection, tenant)
        (source,) = catalog.sources(collection)
        return {document_id_from_uri(dataset, uri): uri for uri in catalog.manifest_by_uri(collection, source.uri)}


def list_graded_uris(dataset: Dataset, collection: str, postgres: Postgres, tenant: str) -> dict[str, list[str]]:
    """The uris of the graded documents, relevant or not, of every question that is asked."""
    uris = list_uris(dataset, collection, postgres, tenant)
    return {question.id: [uris[id] for id in question.grades if id in uris] for question in dataset.asked}


def read_stored_dataset(
    chunks: Iterable[UUID], dataset: Dataset, collection: str, postgres: Postgres, tenant: str
) -> StoredDataset:
    """Reads all documents of the collection, and the spans of these chunks."""
    id_from_uri = partial(document_id_from_uri, dataset)
    with postgres.connect() as connection:
        catalog = Catalog(connection, tenant)
        rows = catalog.chunk_spans(collection, list(chunks))
        (source,) = catalog.sources(collection)
        manifest = catalog.manifest_by_uri(collection, source.uri)
    return StoredDataset(
        documents={
            id_from_uri(uri): document.id for uri, document in manifest.items() if document.status == "completed"
        },
        chunks={row["id"]: Span(document=id_from_uri(row["uri"]), start=row["start"], end=row["end"]) for row in rows},
    )


def locate_answers(
    stored: StoredDataset, dataset: Dataset, postgres: Postgres, tenant: str
) -> dict[str, AnswerCharacters]:
    """The characters of each answer in the stored texts, by the id of its question.

    Questions without answer spans are omitted.
    """
    spans = defaultdict[str, list[Span]](list)
    for span in chain.from_iterable(question.spans for question in dataset.questions):
        spans[span.document].append(span)
    stored_spans, chunks = dict[Span, Span](), dict[str, dict[UUID, Span]]()
    with postgres.connect() as connection:
        catalog = Catalog(connection, tenant)
        for document in read_corpus(dataset.corpus) if spans else ():
            if document.id in spans and document.id in stored.documents:
                stored_id, document_spans = stored.documents[document.id], spans[document.id]
                aligned = align_spans(document_spans, document.text, catalog.text(stored_id))
                stored_spans.update(zip(document_spans, aligned, strict=True))
                chunks[document.id] = {
                    row["id"]: Span(document=document.id, start=row["start"], end=row["end"])
                    for row in catalog.chunks(stored_id)
                }
    return {
        question.id: _locate_answer(frozenset(question.spans), stored_spans, chunks)
        for question in dataset.questions
        if question.spans
    }


def _locate_answer(
    spans: frozenset[Span], stored_spans: Mapping[Span, Span], chunks: Mapping[str, Mapping[UUID, Span]]
) -> AnswerCharacters:
    """The characters of one answer. `stored_spans` maps spans of the dataset to spans of the stored texts."""
    existing = {span: stored_spans[span] for span in spans if span in stored_spans and stored_spans[span].length}
    documents = {span.document for span in existing}
    chunk_spans = {id: chunk_span for document in documents for id, chunk_span in chunks[document].items()}
    missing_chars = sum(span.length for span in spans - existing.keys())
    return answer_characters(list(existing.values()), chunk_spans, missing_chars)
