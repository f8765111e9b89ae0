"""What an evaluation has to know of the store, under the dataset's ids."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from uuid import UUID

from rag_core.evaluation.dataset import Dataset, named_id, read_corpus, written_id
from rag_core.evaluation.spans import Answer, Span, aligned, answer
from rag_core.ingestion.sources.local import path_of
from rag_core.storage.catalog import Catalog
from rag_core.storage.postgres import Postgres


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """`documents` are those that can be found at all; of `chunks` where they stand."""

    documents: Mapping[str, UUID]
    chunks: Mapping[UUID, Span]


def stored_of(chunks: Iterable[UUID], dataset: Dataset, collection: str, postgres: Postgres, tenant: str) -> Stored:
    """Those chunks, and all documents."""
    id_of = named_id if dataset.corpus.is_dir() else written_id
    with postgres.connect() as connection:
        catalog = Catalog(connection, tenant)
        places = catalog.chunk_places(collection, list(chunks))
        (source,) = catalog.sources(collection)
        manifest = catalog.manifest_of(collection, source.uri)
    return Stored(
        documents={
            id_of(path_of(uri)): document.id for uri, document in manifest.items() if document.status == "completed"
        },
        chunks={
            each["id"]: Span(document=id_of(path_of(each["uri"])), start=each["start"], end=each["end"])
            for each in places
        },
    )


def answers_in(stored: Stored, dataset: Dataset, postgres: Postgres, tenant: str) -> dict[str, Answer]:
    """By question, of those that have spans."""
    spans = defaultdict[str, list[Span]](list)
    for span in chain.from_iterable(question.spans for question in dataset.questions):
        spans[span.document].append(span)
    moved, chunks = dict[Span, Span](), dict[str, dict[UUID, Span]]()
    with postgres.connect() as connection:
        catalog = Catalog(connection, tenant)
        for document, text in _texts(dataset, spans):
            if document in stored.documents:
                id = stored.documents[document]
                moved.update(zip(spans[document], aligned(spans[document], text, catalog.text(id)), strict=True))
                chunks[document] = _places(catalog, document, id)
    return {each.id: _answer(each.spans, moved, chunks) for each in dataset.questions if each.spans}


def _texts(dataset: Dataset, wanted: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Of the dataset's documents, by id."""
    if wanted := frozenset(wanted):
        yield from ((each.id, each.text) for each in read_corpus(dataset.corpus) if each.id in wanted)


def _places(catalog: Catalog, document: str, id: UUID) -> dict[UUID, Span]:
    return {
        chunk["id"]: Span(document=document, start=chunk["start"], end=chunk["end"]) for chunk in catalog.chunks(id)
    }


def _answer(spans: Iterable[Span], moved: Mapping[Span, Span], chunks: Mapping[str, Mapping[UUID, Span]]) -> Answer:
    given = frozenset(spans)
    kept = {span: moved[span] for span in given if span in moved and moved[span].length}
    near = {id: place for name in {span.document for span in kept} for id, place in chunks[name].items()}
    return answer(list(kept.values()), near, sum(span.length for span in given - kept.keys()))
