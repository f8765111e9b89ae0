"""What a leg promises: the dense, the bm25 and the splade one in Postgres, the dense one in memory, and the scripted
one."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import pytest
from drafts import SPACE, TENANT, draft, vector, weigh_draft, weights
from fakes.corpus import MemoryCorpus
from fakes.legs import ScriptedLeg
from targets import publish

from rag_core.protocols import Leg, Ranking
from rag_core.retrieval.bm25 import Bm25Leg
from rag_core.retrieval.dense import DenseLeg
from rag_core.retrieval.splade import SpladeLeg
from rag_core.storage.corpus import CorpusReader
from rag_core.storage.lexical.parameters import Bm25
from rag_core.storage.postgres import Postgres
from rag_core.types import Draft, Matrix, Query, TermWeights

T = TypeVar("T")
NOTES = [
    draft("file:///a.md", "keys are rotated", "keys are lost", "nothing of that", metadata={"kind": "memo"}),
    draft("file:///b.md", "rotated keys and keys", "the same twice", "keys", metadata={"kind": "report"}),
]
ALL = [chunk.id for note in NOTES for chunk in note.chunks]
QUERY = Query(text="rotated keys", tenant=TENANT)


class Vectors:
    """An embedder that counts."""

    def __init__(self) -> None:
        self.embedded: list[str] = []

    async def embed(self, texts: list[str]) -> Matrix:
        self.embedded.extend(texts)
        return np.stack([vector(text) for text in texts])


class Weights:
    """A weigher that counts."""

    def __init__(self) -> None:
        self.weighed: list[str] = []

    async def weigh(self, texts: list[str]) -> list[TermWeights]:
        self.weighed.extend(texts)
        return [weights(text) for text in texts]


def dense(corpus: Any) -> Leg:
    return DenseLeg(corpus, Vectors(), SPACE)


def bm25(corpus: Any) -> Leg:
    return Bm25Leg(corpus, Bm25(1.5, 0.75))


def splade(corpus: Any) -> Leg:
    return SpladeLeg(corpus, Weights(), "model")


def constant_leg(corpus: Any) -> Leg:
    return ScriptedLeg(scores={id: float(n % 4) for n, id in enumerate(ALL)})


def in_memory() -> MemoryCorpus:
    memory = MemoryCorpus(tenant=TENANT, collection="default", space=SPACE)
    memory.publish(NOTES)
    return memory


Ask = Callable[[Callable[[Leg], Awaitable[T]]], T]


@pytest.fixture(
    params=[
        pytest.param((dense, True), id="dense", marks=pytest.mark.postgres),
        pytest.param((bm25, True), id="bm25", marks=pytest.mark.postgres),
        pytest.param((splade, True), id="splade", marks=pytest.mark.postgres),
        pytest.param((dense, False), id="dense in memory"),
        pytest.param((constant_leg, False), id="scripted"),
    ]
)
def ask(request: pytest.FixtureRequest) -> Ask[Any]:
    """Returns a function that runs something with the leg, over the notes."""
    make, stored = request.param
    store = request.getfixturevalue("store") if stored else None
    if store:
        publish(store, *map(weigh_draft, NOTES), splade="model")

    async def run_with_leg(work: Callable[[Leg], Awaitable[T]]) -> T:
        corpus = CorpusReader(store) if store else in_memory()
        try:
            return await work(make(corpus))
        finally:
            if isinstance(corpus, CorpusReader):
                await corpus.close()

    return lambda work: asyncio.run(run_with_leg(work))


def rank(ask: Ask[Ranking], k: int = 100, query: Query = QUERY) -> Ranking:
    return ask(lambda leg: leg.rank(query, k))


def test_a_ranking_is_best_first_with_ties_by_id_and_every_chunk_once(ask: Ask[Ranking]) -> None:
    ranking = rank(ask)
    assert len(ranking) >= 4
    assert ranking == sorted(ranking, key=lambda pair: (-pair[1], pair[0]))
    assert len({id for id, _ in ranking}) == len(ranking)


def test_the_first_k_are_the_beginning_of_the_whole_ranking(ask: Ask[Ranking]) -> None:
    assert rank(ask, 3) == rank(ask)[:3]


def test_scores_are_those_of_the_ranking_in_the_requested_order(ask: Ask[Any]) -> None:
    ranking = rank(ask)
    for ids in ([id for id, _ in ranking], [id for id, _ in reversed(ranking)], [ranking[1][0]], []):
        scores = ask(lambda leg, ids=ids: leg.score(QUERY, ids))
        assert scores == pytest.approx([dict(ranking)[id] for id in ids], rel=1e-6)


def test_chunks_below_k_have_their_scores_too(ask: Ask[Any]) -> None:
    ranking = rank(ask)
    last = ranking[-1]
    assert ask(lambda leg: leg.score(QUERY, [last[0]])) == pytest.approx([last[1]], rel=1e-6)


def test_a_question_is_encoded_once_however_often_the_leg_is_asked() -> None:
    embedder = Vectors()

    async def rank_three_times() -> None:
        leg = DenseLeg(in_memory(), embedder, SPACE)  # type: ignore[arg-type]
        for _ in range(2):
            ranking = await leg.rank(QUERY, 2)
            await leg.score(QUERY, [id for id, _ in ranking])
        await leg.rank(replace(QUERY, text="another"), 2)

    asyncio.run(rank_three_times())
    assert embedder.embedded == ["rotated keys", "another"]


@pytest.mark.postgres
def test_a_question_is_weighed_once_however_often_the_leg_is_asked(store: Postgres) -> None:
    publish(store, *map(weigh_draft, NOTES), splade="model")
    weigher = Weights()

    async def rank_three_times() -> None:
        corpus = CorpusReader(store)
        leg = SpladeLeg(corpus, weigher, "model")
        for _ in range(2):
            ranking = await leg.rank(QUERY, 2)
            await leg.score(QUERY, [id for id, _ in ranking])
        await leg.rank(replace(QUERY, text="another"), 2)
        await corpus.close()

    asyncio.run(rank_three_times())
    assert weigher.weighed == ["rotated keys", "another"]


def test_a_chunk_without_a_vector_has_no_cosine(ask: Ask[Any]) -> None:
    stranger: Draft = draft("file:///c.md", "never stored")

    async def score_both(leg: Leg) -> list[float]:
        return await leg.score(QUERY, [stranger.chunks[0].id, ALL[0]])

    first, second = ask(score_both)
    assert np.isnan(first) or first == 0  # which is what bm25 gives a chunk without the question's words
    assert second == pytest.approx(dict(rank(ask))[ALL[0]], rel=1e-6)
