"""The bm25 leg on the real store: what it counts, what each caller sees, and in which snapshot."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from math import log1p
from threading import Event
from typing import Any, TypeVar
from uuid import UUID

import numpy as np
import pytest
from drafts import TENANT, draft
from oracles import bm25s_scores, rank_bm25_scores
from readers import query_corpus
from targets import begin, publish, superuser

from rag_core.errors import NotFoundError
from rag_core.protocols import Leg, Ranking
from rag_core.retrieval.bm25 import Bm25Leg
from rag_core.storage.corpus import CorpusReader
from rag_core.storage.filters import parse_filter
from rag_core.storage.lexical.overview import OVERVIEW
from rag_core.storage.lexical.parameters import Bm25
from rag_core.storage.maintenance import Maintenance
from rag_core.storage.postgres import Postgres
from rag_core.text.analysis import terms
from rag_core.types import Draft, Query

pytestmark = pytest.mark.postgres

T = TypeVar("T")
BM25 = Bm25(k1=1.5, b=0.75)
QUERY = Query(text="red fish", tenant=TENANT)
WORDS = [f"word{rank}" for rank in range(40)]


def run_leg(store: Postgres, question: Callable[[Leg], Awaitable[T]], cached_bytes: int = 1 << 20) -> T:
    return query_corpus(store, lambda reader: question(Bm25Leg(reader, BM25)), cached_bytes)


def rank_chunks(store: Postgres, query: Query = QUERY, k: int = 100) -> Ranking:
    return run_leg(store, lambda leg: leg.rank(query, k))


def rank_texts(store: Postgres, *drafts: Draft, k: int = 100, **query: Any) -> list[str]:
    """Returns the texts of the drafts' chunks in the order of the ranking."""
    texts_by_id = {chunk.id: chunk.text for draft in drafts for chunk in draft.chunks}
    return [texts_by_id[id] for id, _ in rank_chunks(store, replace(QUERY, **query), k)]


def expected_scores(
    drafts: Sequence[Draft], question: str, oracle: Callable[..., Any] = rank_bm25_scores
) -> dict[UUID, float]:
    chunks = [chunk for draft in drafts for chunk in draft.chunks]
    token_lists = [terms(chunk.embedded_text, "en") for chunk in chunks]
    scores = oracle(token_lists, terms(question, "en"), BM25).tolist()
    return {chunk.id: score for chunk, score in zip(chunks, scores, strict=True) if score > 0}


def is_same(ranking: Ranking, scores: dict[UUID, float]) -> bool:
    ranked_scores = dict(ranking)
    return set(ranked_scores) == set(scores) and all(
        abs(ranked_scores[id] - scores[id]) <= 1e-9 * scores[id] for id in ranked_scores
    )


def with_language(draft: Draft, language: str) -> Draft:
    return replace(draft, document=replace(draft.document, language=language)) if draft.document else draft


def corpus(seed: int, n_documents: int, run: str = "") -> list[Draft]:
    """Documents of one to five chunks, with words by Zipf's law."""
    generator = np.random.default_rng(seed)

    def text() -> str:
        return (
            " ".join(WORDS[rank] for rank in np.minimum(generator.zipf(1.4, generator.integers(1, 40)), 40) - 1) + run
        )

    return [draft(f"file:///{n}.md", *(text() for _ in range(generator.integers(1, 6)))) for n in range(n_documents)]


@pytest.mark.parametrize("oracle", [rank_bm25_scores, bm25s_scores])
def test_scores_are_those_of_the_references_after_updates_and_deletions(store: Postgres, oracle: Any) -> None:
    old, new = corpus(1, 30), corpus(2, 10)
    publish(store, *old[:15])
    publish(store, *old[15:])
    publish(store, *new)
    target = begin(store, deleted=old[20:23])
    writer = target.open()
    writer.delete([document.id for document in old[20:23]])
    writer.close()
    living = [*new, *old[10:20], *old[23:]]
    for question in ("word3 word7", "word0", "word39 word5 word5", "word1 word2 unknown"):
        ranking = rank_chunks(store, replace(QUERY, text=question), k=1000)
        reference = expected_scores(living, question, oracle)
        assert set(dict(ranking)) == set(reference)
        np.testing.assert_allclose([score for _, score in ranking], [reference[id] for id, _ in ranking], rtol=1e-6)
        assert ranking == sorted(ranking, key=lambda pair: (-pair[1], pair[0]))


def test_a_score_on_demand_is_to_the_bit_the_one_of_the_ranking(store: Postgres) -> None:
    drafts = corpus(3, 20)
    publish(store, *drafts[:10])
    publish(store, *drafts[10:])
    query = replace(QUERY, text="word2 word11 word2")
    ranking = rank_chunks(store, query, k=1000)
    ids = [chunk.id for draft in reversed(drafts) for chunk in draft.chunks]
    scores = run_leg(store, lambda leg: leg.score(query, [*ids, UUID(int=1)]))
    assert scores == [dict(ranking).get(id, 0.0) for id in ids] + [0.0]
    assert run_leg(store, lambda leg: leg.score(query, [])) == []


def test_titles_and_headings_count(store: Postgres) -> None:
    note = draft("file:///a.md", "swims", prefix="Red fish")
    publish(store, note)
    assert rank_texts(store, note) == ["swims"]


def test_a_filter_is_applied_before_the_best_are_cut_off(store: Postgres) -> None:
    loud = [draft(f"file:///loud{n}.md", "red fish " * 5, metadata={"year": 2023}) for n in range(20)]
    quiet = draft("file:///quiet.md", "one red among many other words", "blue", metadata={"year": 2024})
    publish(store, *loud, quiet)
    only = {"filters": parse_filter({"key": "year", "type": "eq", "value": 2024})}
    assert rank_texts(store, quiet, k=1, **only) == ["one red among many other words"]
    assert rank_texts(store, *loud, quiet, filters=parse_filter({"key": "year", "type": "eq", "value": 1999})) == []


def test_a_filter_leaves_the_scores_as_they_are(store: Postgres) -> None:
    drafts = [draft("file:///a.md", "red fish", metadata={"n": 1}), draft("file:///b.md", "red", metadata={"n": 2})]
    publish(store, *drafts)
    only = parse_filter({"key": "n", "type": "eq", "value": 2})
    (pair,) = rank_chunks(store, replace(QUERY, filters=only))
    assert pair in rank_chunks(store)


def test_a_filter_on_chunks_lets_chunks_pass(store: Postgres) -> None:
    first = draft("file:///a.md", "red one", "red two", about_chunks={"page": 1})
    second = draft("file:///b.md", "red three", about_chunks={"page": 2})
    mixed = replace(first, chunks=(first.chunks[0], replace(first.chunks[1], metadata={"page": 2})))
    publish(store, mixed, second)
    only = parse_filter({"key": "page", "type": "eq", "value": 2})
    assert sorted(rank_texts(store, first, second, filters=only)) == ["red three", "red two"]


def test_documents_of_groups_are_ranked_for_their_members_only(store: Postgres) -> None:
    drafts = [draft("file:///a.md", "red fish red fish"), draft("file:///b.md", "red " + "fish and chips " * 9)]
    publish(store, *drafts)
    with superuser(store) as connection:
        connection.execute("update documents set access = '{staff}' where id = %s", [drafts[0].id])
    assert rank_texts(store, *drafts, k=1) == [drafts[1].chunks[0].text]
    assert rank_texts(store, *drafts, k=1, groups=("staff",)) == ["red fish red fish"]


def test_a_tenant_sees_and_counts_its_own_chunks_only(store: Postgres) -> None:
    drafts, other = corpus(4, 10), [draft(f"file:///{n}.md", "word3 word3", tenant="other") for n in range(30)]
    publish(store, *drafts)
    publish(store, *other, tenant="other")
    assert is_same(rank_chunks(store, replace(QUERY, text="word3"), k=1000), expected_scores(drafts, "word3"))


def test_collections_are_counted_separately(store: Postgres) -> None:
    drafts, other = corpus(5, 10), [draft(f"file:///{n}.md", "word3", collection="other") for n in range(9)]
    publish(store, *drafts)
    publish(store, *other, collection="other")
    assert is_same(rank_chunks(store, replace(QUERY, text="word3"), k=1000), expected_scores(drafts, "word3"))
    with pytest.raises(NotFoundError):
        rank_chunks(store, replace(QUERY, collection="missing"))


def test_ties_are_in_the_order_of_ids_whichever_segment_they_are_in(store: Postgres) -> None:
    drafts = [draft(f"file:///{n}.md", "red fish") for n in range(12)]
    for document in drafts:
        publish(store, document)
    ids = sorted(document.chunks[0].id for document in drafts)
    assert [id for id, _ in rank_chunks(store, k=5)] == ids[:5]
    assert [id for id, _ in rank_chunks(store, k=12)] == ids


def test_a_question_meets_documents_of_each_language(store: Postgres) -> None:
    english, german = draft("file:///en.md", "running dogs"), draft("file:///de.md", "Die laufenden Hunde")
    plain, japanese = draft("file:///x.md", "hunde dogs"), draft("file:///ja.md", "東京都の犬")
    languages = {"en": english, "de": german, "": plain, "ja": japanese}
    drafts = [with_language(document, language) for language, document in languages.items()]
    publish(store, *drafts)
    assert rank_texts(store, *drafts, text="dog runs") == ["running dogs"]
    assert sorted(rank_texts(store, *drafts, text="Hunde")) == ["Die laufenden Hunde", "hunde dogs"]
    assert rank_texts(store, *drafts, text="laufende") == ["Die laufenden Hunde"]
    assert rank_texts(store, *drafts, text="京都") == ["東京都の犬"]


def test_english_said_to_be_german_is_not_found_for_its_stop_words(store: Postgres) -> None:
    english = [draft(f"file:///{n}.md", f"the red fish number {n} of the pond") for n in range(20)]
    german = with_language(draft("file:///de.md", "who has the number of the river"), "de")
    best = draft("file:///best.md", "the president")
    publish(store, *english, german, best)
    assert rank_texts(store, *english, german, best, text="who is the president of the pond", k=3)[0] == "the president"


def test_a_word_is_as_rare_as_its_terms_together_whatever_was_deleted_or_merged(store: Postgres) -> None:
    english = [draft(f"file:///{n}.md", "red fishes swim", f"number {n}") for n in range(6)]
    german = [with_language(draft(f"file:///de{n}.md", "the red fishes"), "de") for n in range(4)]
    publish(store, *english[:3], *german[:2])
    publish(store, *english[3:], *german[2:])
    writer = begin(store, deleted=[english[0], german[0]]).open()
    writer.delete([english[0].id, german[0].id])
    writer.close()
    before = rank_chunks(store, replace(QUERY, text="the fishes"), k=1000)
    assert Maintenance().run(store, TENANT)
    assert dict(rank_chunks(store, replace(QUERY, text="the fishes"), k=1000)) == pytest.approx(dict(before), rel=1e-12)
    living, lengths = 5 * 2 + 3, (5 * (3 + 2) + 3 * 3) / (5 * 2 + 3)
    fishes, the = (log1p((living - n + 0.5) / (n + 0.5)) for n in (5 + 3, min(5 * 2 + 3, living)))
    once = 2.5 / (1 + 1.5 * (0.25 + 0.75 * 3 / lengths))
    assert dict(before) == pytest.approx(
        {document.chunks[0].id: fishes * once for document in english[1:]}
        | {document.chunks[0].id: (fishes + the) * once for document in german[1:]}
    )


@pytest.mark.parametrize("question", ["", "  ?!", "what is it", "unheard", "\x00 \ud800"])
def test_a_question_without_a_known_word_finds_nothing(store: Postgres, question: str) -> None:
    note = draft("file:///a.md", "red fish, and what it is")
    publish(store, note)
    query = replace(QUERY, text=question)
    assert rank_chunks(store, query) == []
    assert run_leg(store, lambda leg: leg.score(query, [note.chunks[0].id])) == [0.0]


def test_an_empty_collection_has_no_hits(store: Postgres) -> None:
    begin(store)
    assert rank_chunks(store) == []


def test_a_question_that_is_asked_again_reads_no_postings(store: Postgres) -> None:
    publish(store, *corpus(6, 5))
    query = replace(QUERY, text="word0 word1 unknown")

    async def rank_twice(leg: Leg) -> tuple[Ranking, Ranking]:
        first = await leg.rank(query, 10)
        with superuser(store) as connection:
            connection.execute("delete from lexical_postings")
        return first, await leg.rank(query, 10)

    first, second = run_leg(store, rank_twice)
    assert first == second != []
    assert run_leg(store, lambda leg: leg.rank(query, 10)) == []


def test_the_planner_expects_the_same_of_every_question_so_that_it_keeps_a_plan(store: Postgres) -> None:
    publish(store, *corpus(6, 40))
    with superuser(store) as connection:
        connection.execute("analyze")

    async def costs(reader: CorpusReader) -> list[float]:
        async with reader.snapshot(QUERY) as snapshot:
            scope = {**snapshot.scope, "kind": "words"}
            parameter_sets = [{**scope, "terms": WORDS[:count]} for count in (1, 40)]
            rows = [
                await snapshot.connection.execute(b"explain (format json) " + OVERVIEW, parameters)
                for parameters in parameter_sets
            ]
            plans = [await cursor.fetchone() for cursor in rows]
            return [plan[0][0]["Plan"]["Total Cost"] for plan in plans if plan]

    few, many = query_corpus(store, costs)
    assert few == many


@pytest.mark.parametrize("cached_bytes", [0, 1 << 20])
def test_what_is_kept_of_older_segments_does_not_hide_a_newer_one(store: Postgres, cached_bytes: int) -> None:
    old, new = corpus(7, 6), corpus(8, 3)
    query = replace(QUERY, text="word0 word1 word2")

    async def rank_around_publish(leg: Leg) -> Ranking:
        await leg.rank(query, 10)
        await asyncio.to_thread(publish, store, *new)
        return await leg.rank(query, 1000)

    publish(store, *old)
    ranking = run_leg(store, rank_around_publish, cached_bytes)
    assert is_same(ranking, expected_scores([*new, *old[3:]], query.text))


@pytest.mark.parametrize("merged", [False, True])
def test_a_chunk_that_a_newer_version_contains_is_found_at_its_new_place(store: Postgres, merged: bool) -> None:
    """The chunk's id is in two segments then, with another number in each."""
    publish(store, draft("file:///a.md", "red fish", "blue fish"), draft("file:///b.md", "green fish"))
    new = draft("file:///a.md", "a fish that swims ahead", "red fish", "blue fish")
    publish(store, new)
    if merged:
        Maintenance().run(store, TENANT)
    scores = expected_scores([new, draft("file:///b.md", "green fish")], QUERY.text)
    unchanged_id = new.chunks[1].id

    async def rank_and_score(leg: Leg) -> tuple[Ranking, list[float]]:
        return await leg.rank(QUERY, 10), await leg.score(QUERY, [unchanged_id])

    ranking, (score,) = run_leg(store, rank_and_score)
    assert is_same(ranking, scores)
    assert score == dict(ranking)[unchanged_id]


def test_a_snapshot_ranks_what_it_was_opened_on(store: Postgres) -> None:
    old, new = corpus(9, 5), corpus(10, 5)
    query = replace(QUERY, text="word0 word1")
    publish(store, *old)

    async def rank_across_publish(leg: Bm25Leg) -> tuple[Ranking, Ranking, Ranking]:
        async with leg.corpus.snapshot(query):
            before = await leg.rank(query, 1000)
            await asyncio.to_thread(publish, store, *new)
            within = await leg.rank(query, 1000)
        return before, within, await leg.rank(query, 1000)

    before, within, after = run_leg(store, rank_across_publish)  # type: ignore[arg-type]
    assert before == within
    assert is_same(after, expected_scores(new, query.text))


@pytest.mark.slow
def test_readers_never_see_a_mix_during_writes(store: Postgres) -> None:
    """All documents are swapped in one transaction: each reading equals one of the two corpora, and has its texts."""
    corpora = corpus(11, 8, " even"), corpus(12, 8, " odd")
    query = replace(QUERY, text="word0 word2 word3 even odd")
    references = [expected_scores(drafts, query.text) for drafts in corpora]
    publish(store, *corpora[0])
    finished = Event()

    def swap() -> None:
        for turn in range(1, 25):
            publish(store, *corpora[turn % 2])
        finished.set()

    async def read_until_finished(leg: Bm25Leg) -> list[tuple[Ranking, list[float], list[str]]]:
        readings = []
        while not finished.is_set():
            async with leg.corpus.snapshot(query):
                ranking = await leg.rank(query, 1000)
                scores = await leg.score(query, [id for id, _ in ranking])
                hits = await leg.corpus.fetch_hits(query, "bm25", ranking)
            readings.append((ranking, scores, [hit.chunk.text for hit in hits]))
            await asyncio.sleep(random.random() / 500)
        return readings

    with ThreadPoolExecutor() as threads:
        writing = threads.submit(swap)
        readings = run_leg(store, read_until_finished)  # type: ignore[arg-type]
        writing.result()
    assert len(readings) > 20
    for ranking, scores, texts in readings:
        assert [score for _, score in ranking] == scores
        assert any(is_same(ranking, reference) for reference in references)
        assert len(texts) == len(ranking)
        assert len({text.rpartition(" ")[2] for text in texts}) == 1
