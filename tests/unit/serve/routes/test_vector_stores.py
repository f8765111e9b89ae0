"""OpenAI's own client searches a collection."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from fakes.answering import ScriptedRetriever, passage
from fakes.serving import RecordingRetriever, scripted_graph, serve_graph
from openai import NotFoundError, OpenAI, UnprocessableEntityError

from rag_core.errors import NotFoundError as Missing
from rag_core.protocols import Retriever
from rag_core.types import Comparison, Hit

KEYS, LOCKS = passage(1, "Keys.", uri="file:///a/all%20keys.md").hit, passage(2, "Locks.", title="Locks", uri="/").hit


def hit_with_metadata(hit: Hit) -> Hit:
    about: dict[str, Any] = {"language": "en", "year": 2026, "draft": True, "authors": ["A", "B"]}
    return replace(
        hit, chunk=replace(hit.chunk, metadata={"page": 3}), origin=replace(hit.origin, metadata=about), score=0.5
    )


@contextmanager
def client(retriever: Retriever) -> Iterator[OpenAI]:
    with (
        serve_graph(scripted_graph(retriever)) as address,
        OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as asking,
    ):
        yield asking


def test_passages_come_best_first_with_their_file() -> None:
    with client(ScriptedRetriever(hits=[KEYS, LOCKS])) as asking:
        page = asking.vector_stores.search("docs", query="keys")
    assert [(hit.filename, hit.score, hit.content[0].text) for hit in page.data] == [
        ("all keys.md", 1.0, "Keys."),
        ("Locks", 0.5, "Locks."),
    ]
    assert page.data[0].file_id == str(KEYS.chunk.document_id)
    assert page.object == "vector_store.search_results.page"
    assert (page.model_extra or {}) == {"search_query": ["keys"], "has_more": False, "next_page": None}


def test_attributes_are_what_filters_compare() -> None:
    with client(ScriptedRetriever(hits=[hit_with_metadata(KEYS)])) as asking:
        (hit,) = asking.vector_stores.search("docs", query="keys").data
    assert hit.attributes == {"language": "en", "year": 2026, "draft": True, "authors": "A, B", "page": 3}


def test_the_query_has_the_collection_the_filter_and_the_number_of_hits() -> None:
    retriever = RecordingRetriever(hits=[KEYS, LOCKS])
    with client(retriever) as asking:
        page = asking.vector_stores.search(
            "docs", query=["keys"], max_num_results=1, filters={"type": "eq", "key": "language", "value": "en"}
        )
    (query,) = retriever.queries
    assert (query.text, query.collection) == ("keys", "docs")
    assert query.filters == Comparison(key="language", type="eq", value="en")
    assert len(page.data) == 1


def test_a_threshold_leaves_out_what_scores_below_it() -> None:
    with client(ScriptedRetriever(hits=[KEYS, LOCKS])) as asking:
        page = asking.vector_stores.search("docs", query="keys", ranking_options={"score_threshold": 0.75})
        all_of_them = asking.vector_stores.search("docs", query="keys", ranking_options={"ranker": "auto"})
    assert [hit.score for hit in page.data] == [1.0]
    assert len(all_of_them.data) == 2


def test_a_collection_that_is_not_there_is_not_found() -> None:
    missing = ScriptedRetriever(hits=[], error=Missing("no collection 'x'"))
    with client(missing) as asking, pytest.raises(NotFoundError) as raised:
        asking.vector_stores.search("x", query="keys")
    assert raised.value.code == "not_found"


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"query": ["a", "b"]}, "#/query"),
        ({"query": ""}, "#/query"),
        ({"rewrite_query": True}, "#/rewrite_query"),
        ({"ranking_options": {"ranker": "none"}}, "#/ranking_options/ranker"),
        ({"max_num_results": 51}, "#/max_num_results"),
    ],
)
def test_an_unsupported_option_is_refused_by_its_name(body: dict[str, Any], pointer: str) -> None:
    with client(ScriptedRetriever(hits=[])) as asking, pytest.raises(UnprocessableEntityError) as raised:
        asking.vector_stores.search("docs", **{"query": "keys", **body})
    assert [error["pointer"] for error in raised.value.response.json()["errors"]] == [pointer]
