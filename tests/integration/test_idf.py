"""The idf of a question's words, on the real store."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from math import log1p
from typing import Any

import pytest
from drafts import TENANT, draft
from readers import query_corpus
from targets import begin, publish

from rag_core.storage.corpus import CorpusReader
from rag_core.storage.lexical.parameters import Bm25
from rag_core.storage.postgres import Postgres
from rag_core.types import Draft, Query

pytestmark = pytest.mark.postgres

QUERY = Query(text="red fish fish swimming in the sea", tenant=TENANT)


def idf(store: Postgres, **query: Any) -> Mapping[str, float]:
    return query_corpus(store, lambda reader: reader.idf(replace(QUERY, **query)))


def lucene(having: int, chunks: int) -> float:
    return pytest.approx(log1p((chunks - having + 0.5) / (having + 0.5)))


def spanish(draft: Draft) -> Draft:
    return replace(draft, document=replace(draft.document, language="es")) if draft.document else draft


def test_every_term_of_the_question_once_by_the_chunks_that_have_it(store: Postgres) -> None:
    publish(store, draft("file:///a.md", "red fish", "a fish"), draft("file:///b.md", "fish swim"))
    publish(store, draft("file:///c.md", "red red bird"))
    assert idf(store) == {"red": lucene(2, 4), "fish": lucene(3, 4), "swim": lucene(1, 4), "sea": lucene(0, 4)}


def test_what_was_deleted_does_not_count(store: Postgres) -> None:
    gone = draft("file:///b.md", "fish", "fish", "fish")
    publish(store, draft("file:///a.md", "red fish"), gone)
    writer = begin(store, deleted=[gone]).open()
    writer.delete([gone.id])
    writer.close()
    assert idf(store, text="fish") == {"fish": lucene(1, 1)}


def test_each_language_of_the_collection_has_its_terms(store: Postgres) -> None:
    publish(store, draft("file:///a.md", "the gates open"), spanish(draft("file:///b.md", "las llaves")))
    assert idf(store, text="gates llaves").keys() == {"gate", "llave", "gat", "llav"}


def test_a_collection_without_documents_knows_no_terms(store: Postgres) -> None:
    publish(store)
    assert idf(store, text="red") == {}


def test_it_is_read_under_the_snapshot_around(store: Postgres) -> None:
    publish(store, draft("file:///a.md", "red fish"))

    async def read_around_publish(reader: CorpusReader) -> tuple[Mapping[str, float], Mapping[str, float]]:
        async with reader.reading(QUERY):
            await reader.rank_bm25(QUERY, 10, Bm25(1.5, 0.75))
            await asyncio.to_thread(publish, store, draft("file:///b.md", "red bird"))
            within = await reader.idf(QUERY)
        return within, await reader.idf(QUERY)

    within, after = query_corpus(store, read_around_publish)
    assert (within["red"], after["red"]) == (lucene(1, 1), lucene(2, 2))
