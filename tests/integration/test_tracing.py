"""Documents planted where each step loses one: `trace` finds out, over a real store, and `verdict` names the step."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any, ClassVar
from uuid import UUID

import pytest
from drafts import TENANT, draft, draft_with_failure
from fakes.legs import ScriptedLeg, ScriptedReranker
from targets import begin, end, publish, superuser

from rag_core.errors import NotFoundError, RetrievalError
from rag_core.protocols import Leg, Retriever
from rag_core.retrieval.fusion import fuse_distribution, fuse_rrf
from rag_core.retrieval.hybrid import Hybrid
from rag_core.retrieval.legs import LegRetriever, RetrieverLeg
from rag_core.retrieval.per_document import PerDocument
from rag_core.retrieval.reranked import Reranked
from rag_core.retrieval.tracing import trace
from rag_core.retrieval.why import Facts, verdict
from rag_core.stage import stage
from rag_core.storage.catalog import Catalog
from rag_core.storage.corpus import CorpusReader
from rag_core.storage.filters import parse_filter
from rag_core.storage.postgres import Postgres
from rag_core.types import Hit, Query, chunk_id, document_id

pytestmark = pytest.mark.postgres

QUERY = Query(text="how are keys rotated?", tenant=TENANT)
ONLY_GERMAN = parse_filter({"key": "language", "type": "eq", "value": "de"})
LONG = ("the first part of it", "the second part of it", "the third part of it")
FILES = [f"file-{number:02}" for number in range(30)]
FIRST, LAST = "file-00", "file-29"


def chunk(uri: str, ordinal: int = 0) -> UUID:
    document = document_id(TENANT, "default", uri)
    return chunk_id(document, LONG[ordinal] if uri == "long" else f"text of {uri}", 0)


def falling_scores(uris: Sequence[str]) -> dict[UUID, float]:
    """Scores of these uris; the first one is the best."""
    return {chunk(uri): 1 - place / 100 for place, uri in enumerate(uris)}


@pytest.fixture
def store_with_files(store: Postgres) -> Postgres:
    publish(store, *(draft(uri, f"text of {uri}", metadata={"language": "en"}) for uri in FILES), draft("long", *LONG))
    return store


class Tracer:
    """Traces a document through a retriever with scripted legs, over a store with the files."""

    def __init__(self, store: Postgres) -> None:
        self._store = store

    def __call__(self, uri: str, query: Query = QUERY, k: int = 10, span: str = "", **options: Any) -> Facts:
        async def trace_document() -> Facts:
            corpus = CorpusReader(self._store)
            try:
                return await trace(corpus, retriever(corpus, **options), query, k, uri, span)
            finally:
                await corpus.close()

        return asyncio.run(trace_document())


@dataclass(frozen=True, kw_only=True)
class Without:
    """An outer retriever that tracing does not know. It drops a chunk and reverses the others."""

    stage_name: ClassVar[str] = "without"

    retriever: Retriever
    depth: int
    chunk: UUID

    async def retrieve(self, query: Query, k: int) -> list[Hit]:
        hits = await self.retriever.retrieve(query, max(k, self.depth))
        async with stage(self.stage_name) as running:
            hits = [hit for hit in reversed(hits) if hit.chunk.id != self.chunk]
            running.ranking = tuple(hit.chunk.id for hit in hits)
        return hits[:k]


def retriever(
    corpus: CorpusReader,
    dense: Mapping[UUID, float] | None = None,
    bm25: Mapping[UUID, float] | None = None,
    error: Exception | None = None,
    depth: int = 100,
    weight: float = 0.5,
    fusion: Any = None,
    most: int = 0,
    rerank: int = 0,
    reranker: ScriptedReranker | None = None,
    beside: Mapping[UUID, float] | None = None,
    dropped: str = "",
) -> Retriever:
    """A retriever of scripted legs. With `beside`, their hybrid and a leg with these scores are the legs of an outer
    hybrid."""
    legs = {
        "dense": ScriptedLeg(scores=falling_scores(FILES) if dense is None else dense),
        "bm25": ScriptedLeg(scores=falling_scores(FILES) if bm25 is None else bm25, error=error),
    }
    weighing = fusion or partial(fuse_distribution, weights={"dense": 1 - weight, "bm25": weight})
    pipeline: Retriever = Hybrid(corpus=corpus, legs=legs, fusion=weighing, depth=depth)
    if beside is not None:
        outer: dict[str, Leg] = {"text": RetrieverLeg(pipeline), "other": ScriptedLeg(scores=beside)}
        halves = partial(fuse_distribution, weights=dict.fromkeys(outer, 0.5))
        pipeline = Hybrid(corpus=corpus, legs=outer, fusion=halves, depth=20)
    if most:
        pipeline = PerDocument(retriever=pipeline, max_hits=most, depth=100)
    if dropped:
        pipeline = Without(retriever=pipeline, depth=25, chunk=chunk(dropped))
    if rerank:
        pipeline = Reranked(retriever=pipeline, reranker=reranker or ScriptedReranker(word=FIRST), depth=rerank)
    return pipeline


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_hybrid_within_another_is_traced_as_it_was_searched(store_with_files: Postgres, seed: int) -> None:
    """The inner hybrid's scores depend on the number of hits that the outer one requests."""
    order = Random(seed)
    shuffled = [falling_scores(order.sample(FILES, len(FILES))) for _ in range(3)]
    leg_scores = dict(zip(("dense", "bm25", "beside"), shuffled, strict=True))
    facts_by_uri = {uri: Tracer(store_with_files)(uri, depth=10, **leg_scores) for uri in FILES}
    hits = {uri for uri, facts in facts_by_uri.items() if facts.hit.rank}
    assert len(hits) == 10
    assert {uri for uri, facts in facts_by_uri.items() if verdict(facts).step == "found"} == hits
    assert all(facts_by_uri[uri].steps[-1].place == facts_by_uri[uri].hit for uri in hits)
    assert "unexplained" not in {verdict(facts).step for facts in facts_by_uri.values()}


@pytest.fixture
def ask(store_with_files: Postgres) -> Tracer:
    return Tracer(store_with_files)


def test_a_document_that_was_never_stored(ask: Tracer) -> None:
    assert verdict(ask("elsewhere")).step == "never_stored"


def test_a_document_that_a_job_deleted_is_reported_with_the_job(ask: Tracer, store_with_files: Postgres) -> None:
    target = begin(store_with_files, deleted=[draft(FIRST, "")])
    writer = target.open()
    writer.delete([document_id(TENANT, "default", FIRST)])
    writer.close()
    end(target)
    loss = verdict(ask(FIRST))
    assert loss.step == "deleted"
    assert f"job {target.job} deleted it" in loss.reason


def test_a_document_that_a_command_deleted(ask: Tracer, store_with_files: Postgres) -> None:
    with store_with_files.connect() as connection:
        Catalog(connection, TENANT).drop_documents("default", [document_id(TENANT, "default", FIRST)])
    loss = verdict(ask(FIRST))
    assert loss.step == "deleted"
    assert "by command" in loss.reason


def test_a_document_that_could_not_be_parsed_is_reported_with_the_reason_and_the_job(
    ask: Tracer, store_with_files: Postgres
) -> None:
    target = publish(store_with_files, draft_with_failure(draft("broken", "text")))
    facts = ask("broken")
    assert verdict(facts).step == "ingestion"
    assert "its status is failed, from stage read: it was a test" in verdict(facts).reason
    assert facts.stored.job == target.job


def test_a_document_of_another_collection(ask: Tracer, store_with_files: Postgres) -> None:
    publish(store_with_files, draft("manual", "text", collection="manuals"), collection="manuals")
    loss = verdict(ask("manual"))
    assert loss.step == "other_collection"
    assert "--collection manuals" in loss.remedies


def test_a_document_of_another_tenant_was_never_stored(ask: Tracer, store_with_files: Postgres) -> None:
    publish(store_with_files, draft("theirs", "text", tenant="another-tenant"), tenant="another-tenant")
    assert verdict(ask("theirs")).step == "never_stored"


def restrict(store: Postgres, uri: str, collection: str = "default") -> None:
    with superuser(store) as connection:
        id = document_id(TENANT, collection, uri)
        connection.execute("update documents set access = %s where id = %s", [["board", "audit"], id])


@pytest.mark.parametrize("groups", [(), ("staff",)])
@pytest.mark.parametrize("span", ["", "text of"])
def test_a_document_that_only_others_can_read_looks_as_if_it_was_never_stored(
    ask: Tracer, store_with_files: Postgres, groups: tuple[str, ...], span: str
) -> None:
    restrict(store_with_files, FIRST)
    asker = replace(QUERY, groups=groups)
    hidden, absent = ask(FIRST, asker, span=span), ask("elsewhere", asker, span=span)
    assert hidden == replace(absent, stored=replace(absent.stored, uri=FIRST))
    assert verdict(hidden) == verdict(absent)
    member = ask(FIRST, replace(QUERY, groups=("audit", *groups)), span=span)
    assert (verdict(member).step, member.stored.groups) == ("found", ("board", "audit"))


def test_a_document_of_another_collection_that_only_others_can_read_is_not_reported(
    ask: Tracer, store_with_files: Postgres
) -> None:
    publish(store_with_files, draft("manual", "text", collection="manuals"), collection="manuals")
    restrict(store_with_files, "manual", "manuals")
    assert verdict(ask("manual")).step == "never_stored"
    assert verdict(ask("manual", replace(QUERY, groups=("board",)))).step == "other_collection"


def test_a_failure_that_only_others_can_read_is_not_reported(ask: Tracer, store_with_files: Postgres) -> None:
    publish(store_with_files, draft_with_failure(draft(FIRST, "text")))
    restrict(store_with_files, FIRST)
    assert verdict(ask(FIRST)).step == "never_stored"
    assert verdict(ask(FIRST, replace(QUERY, groups=("board",)))).step == "ingestion"


def test_a_document_that_the_filter_excludes(ask: Tracer) -> None:
    facts = ask(FIRST, replace(QUERY, filters=ONLY_GERMAN))
    assert verdict(facts).step == "filter"
    assert not facts.legs


def test_a_document_that_fails_for_the_moment_is_searched_as_it_was(ask: Tracer, store_with_files: Postgres) -> None:
    publish(store_with_files, draft_with_failure(draft(FIRST, "text"), retryable=True))
    assert verdict(ask(FIRST)).step == "found"


def test_a_document_below_every_legs_depth_has_its_true_rank_and_the_depth_that_it_needs(ask: Tracer) -> None:
    facts = ask(LAST, depth=12, bm25=falling_scores(FILES[:5]))
    assert [(leg.leg, leg.place.rank, leg.handed_on) for leg in facts.legs] == [
        ("dense", 30, False),
        ("bm25", 0, False),
    ]
    assert facts.legs[0].place.score == pytest.approx(0.71)
    loss = verdict(facts)
    assert (loss.step, loss.remedies) == ("depth", ("a depth of 30 for dense",))
    assert verdict(ask(LAST, depth=30, bm25=falling_scores(FILES[:5]))).step == "k"


def outvote_last(**more: Any) -> dict[str, Any]:
    """bm25 has the last file first; dense, with nearly all the weight, has it last."""
    return {"bm25": falling_scores([LAST, *FILES[:-1]]), "weight": 0.1, **more}


def test_a_document_that_a_light_leg_has_on_top_and_the_weight_that_keeps_it(ask: Tracer) -> None:
    facts = ask(LAST, **outvote_last())
    loss = verdict(facts)
    assert loss.step == "fusion"
    assert "bm25 ranks it 1 but weighs 0.10" in loss.reason
    needed = float(re.findall(r"a weight of ([\d.]+) for bm25", loss.remedies[0])[0])
    assert verdict(ask(LAST, **outvote_last(weight=needed))).step == "found"
    assert verdict(ask(LAST, **outvote_last(weight=needed - 0.02))).step == "fusion"


def test_where_nothing_is_weighed_no_weight_is_advised(ask: Tracer) -> None:
    facts = ask(LAST, k=1, **outvote_last(fusion=partial(fuse_rrf, k=60)))
    assert verdict(facts).step == "k"
    assert facts.legs[1].weight_needed == 0


def test_a_document_below_k_and_the_k_that_finds_it(ask: Tracer) -> None:
    loss = verdict(ask("file-13"))
    assert (loss.step, loss.remedies) == ("k", ("-k 14",))
    facts = ask("file-13", k=14)
    assert verdict(facts).step == "found"
    assert facts.hit.rank == 14


def long_first_scores() -> dict[str, Any]:
    scores = {**{chunk("long", ordinal): 2 - ordinal / 10 for ordinal in range(3)}, **falling_scores(FILES)}
    return {"dense": scores, "bm25": scores}


def test_a_span_whose_chunk_is_one_too_many_of_its_document(ask: Tracer) -> None:
    loss = verdict(ask("long", span="third part", most=2, **long_first_scores()))
    assert loss.step == "max_chunks_per_document"
    assert "2 chunks of the document rank above it, and the limit is 2" in loss.reason
    assert verdict(ask("long", span="third part", most=3, **long_first_scores())).step == "found"
    assert verdict(ask("long", most=2, **long_first_scores())).step == "found"


def test_a_span_that_chunk_borders_cut(ask: Tracer) -> None:
    facts = ask("long", span="part of it\n\nthe second", **long_first_scores())
    assert verdict(facts).step == "span"
    assert "chunks 0 and 1 contain parts of it" in verdict(facts).reason
    assert verdict(ask("long", span="not in it", **long_first_scores())).step == "span"


def test_a_document_below_the_rerankers_depth(ask: Tracer) -> None:
    loss = verdict(ask("file-22", rerank=20))
    assert (loss.step, loss.remedies) == ("rerank_depth", ("rerank_depth 23",))


def test_a_document_that_the_reranker_moved_down(ask: Tracer) -> None:
    class Backwards(ScriptedReranker):
        async def score(self, question: str, texts: Sequence[str]) -> list[float]:  # noqa: ARG002
            return [float(place) for place in range(len(texts))]

    facts = ask("file-02", rerank=20, reranker=Backwards(word=""))
    loss = verdict(facts)
    assert loss.step == "rerank"
    assert "moved it from 3 to 18" in loss.reason
    assert facts.steps[-1].place.score == 2.0


def test_a_step_of_another_author_is_traced_as_the_built_in_ones(ask: Tracer) -> None:
    facts = ask("file-02", dropped="file-02", rerank=20)
    assert [step.step for step in facts.steps] == ["fusion", "without"]
    dropped, moved, unread = verdict(facts), verdict(ask("file-02", dropped=FIRST)), verdict(ask(LAST, dropped=FIRST))
    assert (dropped.step, dropped.reason) == ("without", "the step without dropped it from rank 3")
    assert (moved.step, moved.reason) == ("without", "the step without moved it from 3 to 23 and passes on 10")
    assert (unread.step, unread.remedies) == ("without_depth", ("without_depth 30",))
    assert verdict(ask("file-20", dropped=FIRST)).step == "found"


def test_a_reranker_that_failed_lost_nothing(ask: Tracer) -> None:
    broken = ScriptedReranker(word="", error=RetrievalError("out of memory"))
    facts = ask("file-13", rerank=20, reranker=broken)
    assert [step.step for step in facts.steps] == ["fusion"]
    assert verdict(facts).remedies == ("-k 14",)


def test_a_leg_that_failed_is_to_blame_when_no_other_knows_the_document(ask: Tracer) -> None:
    loss = verdict(ask(LAST, dense=falling_scores(FILES[:20]), error=RetrievalError("no index")))
    assert (loss.step, loss.reason) == ("leg", "bm25 failed: no index")


def test_a_single_leg_is_cut_at_k(store_with_files: Postgres) -> None:
    async def trace_leg() -> Facts:
        corpus = CorpusReader(store_with_files)
        try:
            alone = LegRetriever(corpus, "dense", ScriptedLeg(scores=falling_scores(FILES)))
            return await trace(corpus, alone, QUERY, 10, "file-13")
        finally:
            await corpus.close()

    loss = verdict(asyncio.run(trace_leg()))
    assert (loss.step, loss.reason) == ("k", "dense ranks it 14, and k is 10")


def test_a_collection_that_is_not_there_is_an_error(ask: Tracer) -> None:
    with pytest.raises(NotFoundError, match="no collection 'docz'"):
        ask(FIRST, replace(QUERY, collection="docz"))
