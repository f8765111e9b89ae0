"""The splade leg on the real store: what it scores, what each caller sees, and how a sync treats its weights."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import numpy as np
import pytest
from drafts import TENANT, draft, draft_with_failure, embed_draft, same_draft, weigh_draft, weights
from fakes.splade import WordWeights
from readers import query_corpus
from targets import begin, end, publish, superuser, write
from trees import hashing_settings, ingest
from trees import write as write_tree

from rag_core import KnowledgeBase, open_knowledge_base
from rag_core.config import Settings
from rag_core.errors import FencedError, SpaceError
from rag_core.models.encoders.query_embedder import ThreadedQueryWeigher
from rag_core.protocols import Leg, Ranking
from rag_core.retrieval.splade import SpladeLeg
from rag_core.storage.catalog import Catalog
from rag_core.storage.corpus import CorpusReader
from rag_core.storage.filters import parse_filter
from rag_core.storage.fsck import SPLADE_COMPLETE, find_violations
from rag_core.storage.lexical import merging
from rag_core.storage.lexical.merging import merge
from rag_core.storage.lexical.segment import WEIGHT_STEP
from rag_core.storage.maintenance import Maintenance
from rag_core.storage.parts import dump_draft, load_draft, split_draft
from rag_core.storage.postgres import Postgres
from rag_core.storage.publishing import CorpusWriter
from rag_core.types import Draft, Query

pytestmark = pytest.mark.postgres

T = TypeVar("T")
MODEL = "model"
QUERY = Query(text="word0 word3 word7", tenant=TENANT)
WORDS = [f"word{rank}" for rank in range(40)]
FOX = "The quick brown fox jumps over the lazy dog and then sleeps in the sun for a very long time."


def run_leg(store: Postgres, question: Callable[[Leg], Awaitable[T]], fingerprint: str = MODEL) -> T:
    weighed = ThreadedQueryWeigher(WordWeights())
    return query_corpus(store, lambda reader: question(SpladeLeg(reader, weighed, fingerprint)))


def rank_chunks(store: Postgres, query: Query = QUERY, k: int = 1000, fingerprint: str = MODEL) -> Ranking:
    return run_leg(store, lambda leg: leg.rank(query, k), fingerprint)


def store_drafts(store: Postgres, *drafts: Draft, **place: Any) -> None:
    publish(store, *drafts, splade=MODEL, **place)


def corpus(seed: int, n_documents: int) -> list[Draft]:
    """Documents of one to five chunks, with words by Zipf's law."""
    generator = np.random.default_rng(seed)

    def text() -> str:
        return " ".join(WORDS[rank] for rank in np.minimum(generator.zipf(1.4, generator.integers(1, 40)), 40) - 1)

    return [
        weigh_draft(draft(f"file:///{n}.md", *(text() for _ in range(generator.integers(1, 6)))))
        for n in range(n_documents)
    ]


def expected_scores(
    drafts: Sequence[Draft], question: str = QUERY.text, step: float = WEIGHT_STEP
) -> dict[UUID, float]:
    """Dot products of weights that are rounded to that step, of the chunks that have one above 0."""
    question_weights = dict(zip(weights(question).terms, weights(question).weights.tolist(), strict=True))
    scores = {
        chunk.id: sum(
            question_weights.get(term, 0.0) * round(weight / step) * step
            for term, weight in zip(chunk_weights.terms, chunk_weights.weights.tolist(), strict=True)
        )
        for document in drafts
        for chunk, chunk_weights in zip(document.chunks, document.weights, strict=True)
    }
    return {id: score for id, score in scores.items() if score > 0}


def is_same(ranking: Ranking, scores: dict[UUID, float], tolerance: float = 1e-9) -> bool:
    ranked_scores = dict(ranking)
    return set(ranked_scores) == set(scores) and all(
        ranked_scores[id] == pytest.approx(scores[id], rel=tolerance) for id in ranked_scores
    )


def equals_filter(key: str, value: Any) -> Any:
    return parse_filter({"key": key, "type": "eq", "value": value})


def kinds(store: Postgres) -> dict[str, int]:
    """The number of segments of each kind."""
    with superuser(store) as connection:
        return dict(connection.execute("select kind, count(*) from lexical_segments group by kind").fetchall())


def is_sound(store: Postgres) -> bool:
    with superuser(store) as connection:
        return find_violations(connection) == []


@pytest.mark.slow
def test_scores_are_dot_products_after_updates_and_deletions(store: Postgres) -> None:
    old, new = corpus(1, 30), corpus(2, 10)
    store_drafts(store, *old[:15])
    store_drafts(store, *old[15:])
    store_drafts(store, *new)
    with closing(begin(store, deleted=old[20:23]).open()) as writer:
        writer.delete([document.id for document in old[20:23]])
    living = [*new, *old[10:20], *old[23:]]
    for question in (QUERY.text, "word0", "word39 word5", "word1 word2 unknown"):
        ranking = rank_chunks(store, replace(QUERY, text=question))
        reference = expected_scores(living, question)
        assert is_same(ranking, reference)
        assert ranking == sorted(ranking, key=lambda pair: (-pair[1], pair[0]))
        assert [id for id, _ in ranking] == sorted(reference, key=lambda id: (-round(reference[id], 9), id))
        exact = expected_scores(living, question, step=1e-9)
        # half a step for each term of the question
        tolerance = weights(question).weights.sum() * WEIGHT_STEP / 2 + 1e-6
        assert max(abs(score - exact[id]) for id, score in ranking) < tolerance
        assert dict(ranking) == pytest.approx(exact, rel=1e-2, abs=1e-3)


@pytest.mark.slow
def test_a_score_is_as_near_to_the_exact_one_as_the_steps_allow(store: Postgres) -> None:
    heavy = [
        replace(document, weights=tuple(_heavy(chunk_weights) for chunk_weights in document.weights))
        for document in corpus(3, 20)
    ]
    store_drafts(store, *heavy)
    assert is_same(rank_chunks(store), expected_scores(heavy, step=1e-9), tolerance=1e-4)


def _heavy(chunk_weights: Any) -> Any:
    return replace(chunk_weights, weights=chunk_weights.weights + np.float32(1))


def test_a_score_on_demand_is_to_the_bit_the_one_of_the_ranking(store: Postgres) -> None:
    drafts = corpus(4, 20)
    store_drafts(store, *drafts[:10])
    store_drafts(store, *drafts[10:])
    ranking = rank_chunks(store)
    ids = [chunk.id for draft in reversed(drafts) for chunk in draft.chunks]
    assert run_leg(store, lambda leg: leg.score(QUERY, ids)) == [dict(ranking).get(id, 0.0) for id in ids]
    assert run_leg(store, lambda leg: leg.score(QUERY, [])) == []


def test_what_has_no_weights_has_no_score(store: Postgres) -> None:
    with_weights, without = weigh_draft(draft("file:///a.md", "word0")), draft("file:///b.md", "word0")
    store_drafts(store, with_weights, without)
    ids = [without.chunks[0].id, with_weights.chunks[0].id, UUID(int=1)]
    scores = run_leg(store, lambda leg: leg.score(QUERY, ids))
    assert np.isnan(scores[0])
    assert np.isnan(scores[2])
    assert rank_chunks(store) == [(ids[1], scores[1])]


def test_words_and_weights_of_one_term_do_not_mix(store: Postgres) -> None:
    note = replace(draft("file:///a.md", "red fish"), weights=(weights("word0 blue"),))
    store_drafts(store, note)
    assert kinds(store) == {"splade": 1, "words": 1}
    assert len(rank_chunks(store, replace(QUERY, text="blue"))) == 1
    assert rank_chunks(store, replace(QUERY, text="red")) == []
    with open_knowledge_base(store.dsn, settings=["retrieval={type: bm25}", f"tenant={TENANT}"]) as knowledge:
        assert knowledge.search("blue") == []
        assert len(knowledge.search("red")) == 1


def test_a_filter_is_applied_before_the_best_are_cut_off(store: Postgres) -> None:
    loud = [
        replace(draft(f"file:///{n}.md", "x", metadata={"year": 2023}), weights=(_term_weights(word0=3.0),))
        for n in range(9)
    ]
    quiet = replace(draft("file:///quiet.md", "y", metadata={"year": 2024}), weights=(_term_weights(word0=0.1),))
    store_drafts(store, *loud, quiet)
    (pair,) = rank_chunks(store, replace(QUERY, filters=equals_filter("year", 2024)), k=1)
    assert pair[0] == quiet.chunks[0].id
    assert pair in rank_chunks(store)
    assert rank_chunks(store, replace(QUERY, filters=equals_filter("year", 1999))) == []


def _term_weights(**values_by_term: float) -> Any:
    return replace(weights(" ".join(values_by_term)), weights=np.array(list(values_by_term.values()), np.float32))


def test_a_filter_on_chunks_lets_chunks_pass(store: Postgres) -> None:
    first = weigh_draft(draft("file:///a.md", "word0 one", "word0 two", about_chunks={"page": 1}))
    mixed = replace(first, chunks=(first.chunks[0], replace(first.chunks[1], metadata={"page": 2})))
    store_drafts(store, mixed)
    assert [id for id, _ in rank_chunks(store, replace(QUERY, filters=equals_filter("page", 2)))] == [
        first.chunks[1].id
    ]


def test_documents_of_groups_are_ranked_for_their_members_only(store: Postgres) -> None:
    notes = [weigh_draft(draft("file:///a.md", "word0")), weigh_draft(draft("file:///b.md", "word3"))]
    store_drafts(store, *notes)
    with superuser(store) as connection:
        connection.execute("update documents set access = '{staff}' where id = %s", [notes[0].id])
    assert [id for id, _ in rank_chunks(store, k=1)] == [notes[1].chunks[0].id]
    assert len(rank_chunks(store, replace(QUERY, groups=("staff",)))) == 2


def test_tenants_and_collections_are_separate(store: Postgres) -> None:
    drafts = corpus(5, 5)
    store_drafts(store, *drafts)
    store_drafts(store, weigh_draft(draft("file:///x.md", "word0", tenant="other")), tenant="other")
    store_drafts(store, weigh_draft(draft("file:///x.md", "word0", collection="other")), collection="other")
    assert is_same(rank_chunks(store), expected_scores(drafts))


def test_merged_segments_score_as_before(store: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "FAN_IN", 4)
    drafts = corpus(6, 4)
    for document in drafts:
        store_drafts(store, document)
    before = rank_chunks(store)
    assert kinds(store) == {"splade": 4, "words": 4}
    with store.connect() as connection:
        assert merge(connection, TENANT, Catalog(connection, TENANT).collection("default").id) == 8
    assert kinds(store) == {"splade": 1, "words": 1}
    assert rank_chunks(store) == before != []
    publish(store, draft_with_failure(drafts[0]))
    Maintenance().run(store, TENANT)
    assert is_same(rank_chunks(store), expected_scores(drafts[1:]))
    assert is_sound(store)


def test_what_another_model_weighed_is_not_merged_with_it_nor_ranked(
    store: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "FAN_IN", 2)
    first, second, third = corpus(7, 3)
    publish(store, first, splade="old")
    store_drafts(store, second)
    store_drafts(store, third)
    Maintenance().run(store, TENANT)
    assert kinds(store) == {"splade": 2, "words": 1}
    assert is_same(rank_chunks(store), expected_scores([second, third]))
    assert is_same(rank_chunks(store, fingerprint="old"), expected_scores([first]))
    ids = [first.chunks[0].id, second.chunks[0].id]
    scores = run_leg(store, lambda leg: leg.score(QUERY, ids))
    assert np.isnan(scores[0])
    assert not np.isnan(scores[1])


def test_a_collection_without_the_models_weights_says_what_to_do(store: Postgres) -> None:
    begin(store)
    assert rank_chunks(store) == []
    note = draft("file:///a.md", "word0")
    publish(store, note)
    for publishing in ("", "old"):
        publish(store, weigh_draft(note), splade=publishing)
        with pytest.raises(SpaceError, match=r"'default' holds no term weights .* ingest it again with this profile"):
            rank_chunks(store)
        with pytest.raises(SpaceError):
            run_leg(store, lambda leg: leg.score(QUERY, [note.chunks[0].id]))


def test_what_is_published_without_weights_loses_those_it_had(store: Postgres) -> None:
    first, second = corpus(8, 2)
    store_drafts(store, first, second)
    publish(store, replace(first, weights=()))
    assert is_same(rank_chunks(store), expected_scores([second]))
    assert is_sound(store)


def test_what_fails_for_the_moment_or_is_the_same_keeps_its_weights(store: Postgres) -> None:
    first, second, third = drafts = corpus(9, 3)
    store_drafts(store, *drafts)
    store_drafts(store, draft_with_failure(first, retryable=True), same_draft(second), draft_with_failure(third))
    assert is_same(rank_chunks(store), expected_scores([first, second]))


def test_an_older_run_adds_only_what_no_newer_one_has(store: Postgres) -> None:
    older, newer = begin(store, splade=MODEL), begin(store, splade=MODEL)
    (stale, second), (first, _) = corpus(17, 2), corpus(18, 2)
    write(newer, [first])
    write(older, [stale, second])
    assert is_same(rank_chunks(store), expected_scores([first, second]))


def test_what_is_rolled_back_leaves_nothing(store: Postgres) -> None:
    old, new = corpus(10, 5), corpus(11, 5)
    store_drafts(store, *old)
    target = begin(store, new, splade=MODEL)
    end(target)
    with pytest.raises(FencedError):
        write(target, new)
    assert is_same(rank_chunks(store), expected_scores(old))
    assert kinds(store) == {"splade": 1, "words": 1}


def test_a_document_in_parts_has_all_its_weights(store: Postgres) -> None:
    large = weigh_draft(draft("file:///large.md", *(f"word{n % 9} word{n}" for n in range(25))))
    cut = split_draft(replace(large, vectors=None, weights=()), 10)
    parts = [load_draft(dump_draft(weigh_draft(embed_draft(part)))) for part in cut]
    target = begin(store, [large], splade=MODEL)
    write(target, parts[::-1])
    end(target)
    assert is_same(rank_chunks(store), expected_scores([large]))


def test_a_reader_keeps_its_snapshot(store: Postgres) -> None:
    old, new = corpus(12, 5), corpus(13, 5)
    store_drafts(store, *old)

    async def rank_across_publish() -> tuple[Ranking, Ranking]:
        reader = CorpusReader(store)
        leg = SpladeLeg(reader, ThreadedQueryWeigher(WordWeights()), MODEL)
        async with reader.snapshot(QUERY):
            await leg.rank(QUERY, 10)
            await asyncio.to_thread(store_drafts, store, *new)
            within = await leg.rank(QUERY, 1000)
        after = await leg.rank(QUERY, 1000)
        await reader.close()
        return within, after

    within, after = asyncio.run(rank_across_publish())
    assert is_same(within, expected_scores(old))
    assert is_same(after, expected_scores(new))


@pytest.mark.parametrize(
    "damage",
    [
        "delete from lexical_documents where kind = 'splade'",
        "update lexical_documents set dead = true where kind = 'splade'",
        "delete from lexical_segments where kind = 'splade'",
        "delete from lexical_postings where kind = 'splade'",
        "update lexical_documents set n_chunks = 7 where kind = 'splade'",
    ],
)
def test_lost_weights_are_made_again_by_a_sync(store: Postgres, tmp_path: Path, damage: str) -> None:
    folder, settings = write_tree(tmp_path / "docs", {"a.md": FOX, "b.md": "Nothing of the kind."}), with_splade()
    ingest(store, folder, settings=settings)
    before = search_texts(store, settings)
    words = kinds(store)["words"]
    with superuser(store) as connection:
        connection.execute(damage.encode())
    Maintenance().run(store, settings.tenant)
    assert is_sound(store)
    assert kinds(store)["words"] == words
    report = ingest(store, folder, settings=settings)
    assert (report.documents["changed"], report.chunks["embedded"]) == (2, 0)
    assert search_texts(store, settings) == before != []
    assert ingest(store, folder, settings=settings).documents["same"] == 2


@pytest.mark.parametrize(
    "damage",
    [
        "update lexical_segments set analysis = 'another' where kind = 'words'",
        "delete from lexical_documents where kind = 'words'",
        "update lexical_documents set n_chunks = 7 where kind = 'words'",
        "delete from lexical_postings where kind = 'words'",
    ],
)
def test_words_are_repaired_without_a_loss_of_weights(store: Postgres, damage: str) -> None:
    drafts = corpus(16, 3)
    store_drafts(store, *drafts)
    with superuser(store) as connection:
        connection.execute(damage.encode())
    changes = Maintenance().run(store, TENANT)
    assert "3 lexical documents" in [change.subject for change in changes if change.action == "completed"]
    assert is_sound(store)
    assert is_same(rank_chunks(store), expected_scores(drafts))


def with_splade(fingerprint: str = "one") -> Settings:
    weigher = f'{{type: python, object: "fakes.splade:WordWeights", arguments: {{fingerprint: {fingerprint}}}}}'
    return hashing_settings(f"splade={weigher}", "retrieval={type: splade}")


def search_texts(store: Postgres, settings: Settings, question: str = "the fox sleeps") -> list[tuple[str, float]]:

    with KnowledgeBase(
        settings.model_copy(update={"store": settings.store.model_copy(update={"url": store.dsn})})
    ) as kb:
        return [(hit.chunk.text, hit.score) for hit in kb.search(question)]


def test_another_model_does_every_document_again_and_embeds_nothing(store: Postgres, tmp_path: Path) -> None:
    folder = write_tree(tmp_path / "docs", {f"{n}.md": f"{FOX} {n}" for n in range(3)})
    ingest(store, folder, settings=hashing_settings())
    with pytest.raises(SpaceError):
        search_texts(store, with_splade())
    for fingerprint in ("one", "two"):
        report = ingest(store, folder, settings=with_splade(fingerprint))
        assert (report.documents["changed"], report.chunks["embedded"]) == (3, 0)
        assert len(search_texts(store, with_splade(fingerprint))) >= 3
    with pytest.raises(SpaceError):
        search_texts(store, with_splade("one"))
    ingest(store, folder, settings=hashing_settings())
    Maintenance().run(store, with_splade().tenant)
    assert set(kinds(store)) == {"words"}


def test_weights_of_a_document_that_is_gone_are_found_and_repaired(store: Postgres) -> None:
    first, second = corpus(14, 2)
    store_drafts(store, first, second)
    with superuser(store) as connection:
        connection.execute("update lexical_documents set document_id = %s where document_id = %s and kind = 'splade'",
                           [UUID(int=7), first.id])  # fmt: skip
        assert {violation.invariant for violation in find_violations(connection)} == {SPLADE_COMPLETE}
    Maintenance().run(store, TENANT)
    assert is_sound(store)
    assert is_same(rank_chunks(store), expected_scores([second]))


def test_publishers_without_splade_send_no_more_statements(store: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    def statements(splade: str) -> int:
        target = begin(store, corpus(15, 2), splade=splade)
        sent = 0
        with closing(CorpusWriter(target)) as writer:
            execute = writer._connection.execute

            def count_statements(*arguments: Any, **named: Any) -> Any:
                nonlocal sent
                sent += "lexical" in str(arguments[0])
                return execute(*arguments, **named)

            monkeypatch.setattr(writer._connection, "execute", count_statements)
            writer.publish(corpus(15, 2))
        return sent

    assert (statements(""), statements("")) == (3, 5)
    assert statements(MODEL) == 8
