"""The fusion of what the variants of a question find."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest
from drafts import TENANT, chunks
from fakes.legs import ScriptedReranker

from rag_core.errors import RetrievalError
from rag_core.retrieval.query.rules import VariantWeights, list_variants
from rag_core.retrieval.reranked import Reranked
from rag_core.retrieval.variants import FusedVariants, with_variants
from rag_core.stage import recording
from rag_core.storage.corpus import CorpusReader
from rag_core.types import Hit, Message, Origin, Query, StageReport, Variant, document_id

QUERY = Query(text="which?", tenant=TENANT)
QUESTION = Variant(name="question", text="which?", weight=1.0)
PREVIOUS = Variant(name="previous", text="lamps", weight=0.5)
HISTORY = [
    Message(role="user", text="lamps"),
    Message(role="assistant", text="Lamps are red."),
    Message(role="user", text="and locks?"),
    Message(role="assistant", text="Locks are blue."),
]


class OneSnapshot:
    @asynccontextmanager
    async def reading(self, query: Query) -> AsyncIterator[None]:  # noqa: ARG002
        yield


@dataclass
class ByText:
    """A retriever that finds these hits for each text; it fails for a text without any."""

    hits: Mapping[str, list[Hit]]

    async def retrieve(self, query: Query, k: int) -> list[Hit]:
        if query.text not in self.hits:
            raise RetrievalError(f"nothing for {query.text}")
        return self.hits[query.text][:k]


def hit(text: str, score: float) -> Hit:
    (chunk,) = chunks(document_id(TENANT, "default", f"file:///{text}.md"), [text])
    origin = Origin(uri=f"file:///{text}.md", title="")
    return Hit(chunk=chunk, origin=origin, score=score, scores={"dense": score})


def retrieve(retriever: Any, *variants: Variant) -> tuple[list[Hit], list[StageReport]]:
    async def search() -> tuple[list[Hit], list[StageReport]]:
        with recording() as stages:
            return await retriever.retrieve(replace(QUERY, variants=variants), 10), stages

    return asyncio.run(search())


CORPUS = cast(CorpusReader, OneSnapshot())
FOUND = ByText({"which?": [hit("a", 9.0), hit("b", 8.0), hit("c", 5.0)], "lamps": [hit("d", 0.4), hit("b", 0.3)]})


def test_scores_are_scaled_for_each_variant_and_added_with_its_weight() -> None:
    hits, stages = retrieve(FusedVariants(CORPUS, FOUND), QUESTION, PREVIOUS)
    assert [(hit.chunk.text, hit.score) for hit in hits] == [("a", 1.0), ("b", 0.75), ("d", 0.5), ("c", 0.0)]
    assert [set(hit.scores) for hit in hits] == [
        {"dense", "variants"},
        {"dense", "variants"},
        {"variants"},
        {"dense", "variants"},
    ]
    assert [report.stage for report in stages] == ["variant previous", "variants"]


def test_a_variant_that_fails_is_left_out_and_reported() -> None:
    hits, stages = retrieve(FusedVariants(CORPUS, FOUND), QUESTION, replace(PREVIOUS, text="unknown"))
    assert [hit.chunk.text for hit in hits] == ["a", "b", "c"]
    assert [report.stage for report in stages if report.error] == ["variant previous"]


def test_a_question_that_fails_is_an_error() -> None:
    with pytest.raises(RetrievalError):
        retrieve(FusedVariants(CORPUS, FOUND), replace(QUESTION, text="unknown"), PREVIOUS)


def test_a_query_without_variants_is_searched_as_it_is() -> None:
    hits, stages = retrieve(FusedVariants(CORPUS, FOUND))
    assert ([hit.score for hit in hits], stages) == ([9.0, 8.0, 5.0], [])


def test_a_reranker_reads_the_fused_hits() -> None:
    reranked = Reranked(retriever=FOUND, reranker=ScriptedReranker(word="d"), depth=10)
    hits, _ = retrieve(with_variants(reranked, CORPUS), QUESTION, PREVIOUS)
    assert hits[0].chunk.text == "d"


def test_variants_are_the_question_and_the_earlier_messages_with_their_weights() -> None:
    variants = list_variants("and the third?", HISTORY, VariantWeights())
    assert [(variant.name, variant.text, variant.weight) for variant in variants] == [
        ("question", "and the third?", 1.0),
        ("previous", "and locks?", 0.5),
        ("answer", "Locks are blue.", 0.5),
        ("first", "lamps", 0.5),
    ]


def test_a_message_that_occurs_twice_is_searched_once() -> None:
    variants = list_variants("and locks?", HISTORY[:3], VariantWeights(answer=0))
    assert [(variant.name, variant.text) for variant in variants] == [("question", "and locks?"), ("first", "lamps")]
