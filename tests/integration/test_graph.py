"""The graph, from what ingestion writes to what a question finds."""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from math import log
from pathlib import Path
from uuid import UUID

import pytest
from drafts import TENANT, draft, draft_with_failure, same_draft
from targets import begin, superuser
from trees import write as write_tree

from rag_core.knowledge_base import open_knowledge_base
from rag_core.protocols import Ranking
from rag_core.retrieval.graph import GraphLeg
from rag_core.settings import load_settings
from rag_core.storage.catalog import Catalog
from rag_core.storage.corpus import CorpusReader
from rag_core.storage.filters import parse_filter
from rag_core.storage.fsck import ENTITIES_MENTIONED, MENTIONS_VALID, RELATIONS_VALID, find_violations
from rag_core.storage.graph import extraction, reading, writing
from rag_core.storage.graph.repair import repair
from rag_core.storage.postgres import Postgres, transaction
from rag_core.types import Draft, Query
from rag_core.wiring.ingestion import build_inline_runner, build_recipe, build_sync

pytestmark = pytest.mark.postgres

HASHING = ["embedding.type=hashing", "embedding.dimension=64", "parsing.sandbox=false"]
BLOCKED = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
LETTER = draft("file:///letter.md", "a letter of Ada to Charles", "the weather was fine")
ENGINE = draft("file:///engine.md", "the engine of Charles, made for Treasury")
PURSE = draft("file:///purse.md", "the purse of Treasury, kept by Peel", metadata={"kind": "memo"})
PEEL = draft("file:///peel.md", "a horse of Peel and Nobody")


def store_drafts(store: Postgres, *drafts: Draft, graph: bool = True) -> None:
    writer = replace(begin(store, drafts), builds_graph=graph).open()
    writer.publish(drafts)
    writer.close()


def delete_documents(store: Postgres, *documents: UUID) -> None:
    writer = begin(store).open()
    writer.delete(documents)
    writer.close()


def rank(store: Postgres, question: str, k: int = 10, **query: object) -> Ranking:
    async def rank_question(leg: GraphLeg) -> Ranking:
        return await leg.rank(replace(Query(text=question, tenant=TENANT), **query), k)  # type: ignore[arg-type]

    return run_with_leg(store, rank_question)


def run_with_leg(store: Postgres, ask: "object") -> Ranking:
    async def run_with_corpus() -> Ranking:
        corpus = CorpusReader(store)
        try:
            ranking: Ranking = await ask(GraphLeg(corpus))  # type: ignore[operator]
            return ranking
        finally:
            await corpus.close()

    return asyncio.run(run_with_corpus())


def chunks(ranking: Ranking) -> list[UUID]:
    return [id for id, _ in ranking]


def first_chunks(*drafts: Draft) -> list[UUID]:
    return [draft.chunks[0].id for draft in drafts]


def rows(store: Postgres) -> dict[str, int]:
    with superuser(store) as connection:
        counted = "select (select count(*) from rag.mentions), (select count(*) from rag.relations)"
        [(mentions, relations)] = connection.execute(counted).fetchall()
    return {"mentions": mentions, "relations": relations}


def entities(store: Postgres) -> list[str]:
    with superuser(store) as connection:
        return [name for (name,) in connection.execute("select name from rag.entities order by name")]


def is_sound(store: Postgres) -> bool:
    with store.connect("rag_worker") as connection:
        return {violation.invariant for violation in find_violations(connection)}.isdisjoint(
            {MENTIONS_VALID, RELATIONS_VALID, ENTITIES_MENTIONED}
        )


def test_a_question_finds_its_entity_and_what_is_related_up_to_two_hops_away(store: Postgres) -> None:
    store_drafts(store, LETTER, ENGINE, PURSE, PEEL)
    ranking = rank(store, "what did ada write?")
    assert chunks(ranking) == first_chunks(LETTER, ENGINE, PURSE)  # Peel is three hops from Ada


def test_scores_are_the_shares_of_the_walk(store: Postgres) -> None:
    store_drafts(store, LETTER)
    [(chunk, score)] = rank(store, "Ada?")
    # ada -> charles -> ada, each the only relation of the other, half of the strength left at each step; one mention
    # each, of an entity that one chunk mentions
    assert chunk == LETTER.chunks[0].id
    assert score == pytest.approx((1 + 0.25) / 2 + 0.5 / 2)


def test_an_entity_that_many_mention_says_less_of_each(store: Postgres) -> None:
    store_drafts(store, *(draft(f"file:///{n}.md", f"it is number {n} of Ada") for n in range(4)))
    assert [score for _, score in rank(store, "Ada")] == pytest.approx([0.5 / (1 + log(4))] * 4)


def test_no_way_leads_to_or_through_what_too_many_mention(store: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    letters = [draft(f"file:///{n}.md", f"a letter of Ada to number {n}") for n in range(3)]
    store_drafts(store, ENGINE, *letters, draft("file:///last.md", "a letter of Ada to Charles"))
    assert first_chunks(ENGINE)[0] in chunks(rank(store, "Ada"))
    monkeypatch.setattr(reading, "HUB", 3)
    assert len(rank(store, "Ada")) == 4
    assert first_chunks(ENGINE)[0] not in chunks(rank(store, "Ada"))
    assert first_chunks(letters[0])[0] not in chunks(rank(store, "Treasury"))


def test_a_question_without_an_entity_of_the_collection_finds_nothing(store: Postgres) -> None:
    store_drafts(store, LETTER, ENGINE)
    assert rank(store, "who is Grace Hopper?") == []
    assert rank(store, "") == []


def test_no_more_than_k_come_and_ties_are_in_the_order_of_ids(store: Postgres) -> None:
    store_drafts(store, *(draft(f"file:///{n}.md", f"it is number {n} of Ada") for n in range(6)))
    everything = chunks(rank(store, "Ada"))
    assert everything == sorted(everything)
    assert chunks(rank(store, "Ada", k=2)) == everything[:2]


def test_scores_of_single_chunks_are_those_of_the_ranking(store: Postgres) -> None:
    store_drafts(store, LETTER, ENGINE, PURSE, PEEL)
    everything = [*first_chunks(PEEL, PURSE, LETTER, ENGINE), LETTER.chunks[1].id, UUID(int=7)]

    async def score_everything(leg: GraphLeg) -> Ranking:
        query = Query(text="Ada", tenant=TENANT)
        return list(zip(everything, await leg.score(query, everything), strict=True))

    scores = dict(rank(store, "Ada"))
    assert dict(run_with_leg(store, score_everything)) == {id: scores.get(id, 0.0) for id in everything}


def test_filters_leave_out_chunks_but_not_the_way_to_others(store: Postgres) -> None:
    store_drafts(store, LETTER, ENGINE, PURSE)
    memo = parse_filter({"key": "kind", "type": "eq", "value": "memo"})
    assert chunks(rank(store, "Ada", filters=memo)) == first_chunks(PURSE)


def test_what_the_caller_cannot_read_is_neither_found_nor_a_path(store: Postgres) -> None:
    store_drafts(store, LETTER, ENGINE, PURSE)
    with superuser(store) as connection:
        connection.execute("update rag.documents set access = '{staff}' where id = %s", [ENGINE.id])
    assert chunks(rank(store, "Ada")) == first_chunks(LETTER)
    assert chunks(rank(store, "Ada", groups=("staff",))) == first_chunks(LETTER, ENGINE, PURSE)


def test_another_tenant_has_another_graph(store: Postgres) -> None:
    store_drafts(store, LETTER)
    begin(store, tenant="another-tenant")
    assert rank(store, "Ada", tenant="another-tenant") == []


def test_a_new_version_takes_the_place_of_the_old_one(store: Postgres) -> None:
    store_drafts(store, LETTER, ENGINE)
    store_drafts(store, draft("file:///letter.md", "a letter of Mary to Charles", "the weather was fine"))
    assert rank(store, "Ada") == []
    assert chunks(rank(store, "Mary"))[0] == draft("file:///letter.md", "a letter of Mary to Charles").chunks[0].id
    assert rows(store) == {"mentions": 4, "relations": 4}


@pytest.mark.parametrize(
    ("newer", "stays"),
    [
        (same_draft(LETTER), True),
        (draft_with_failure(LETTER, retryable=True), True),
        (draft_with_failure(LETTER), False),
    ],
    ids=["unchanged", "failed for the moment", "failed for good"],
)
def test_the_graph_says_what_the_stored_version_says(store: Postgres, newer: Draft, stays: bool) -> None:
    store_drafts(store, LETTER)
    store_drafts(store, newer)
    assert (rows(store)["mentions"] > 0) is stays
    assert bool(rank(store, "Ada")) is stays


@pytest.mark.parametrize("how", ["delete", "drop document", "drop source", "drop collection", "no graph any more"])
def test_what_is_gone_says_nothing(store: Postgres, how: str) -> None:
    store_drafts(store, LETTER)
    with store.connect() as connection:
        catalog = Catalog(connection, TENANT)
        match how:
            case "delete":
                delete_documents(store, LETTER.id)
            case "drop document":
                catalog.drop_documents("default", [LETTER.id])
            case "drop source":
                source = catalog.ensure_source(catalog.collection("default"), "file:///")
                with superuser(store) as behind:
                    behind.execute("update rag.documents set source = %s", [source])
                catalog.drop_source("default", "file:///")
            case "drop collection":
                catalog.drop_collection("default")
            case _:
                store_drafts(store, draft("file:///letter.md", "a letter of Ada, but changed"), graph=False)
    assert rows(store) == {"mentions": 0, "relations": 0}
    assert entities(store) == []


def test_an_entity_goes_with_the_last_document_that_mentions_it(store: Postgres) -> None:
    store_drafts(store, LETTER, ENGINE)
    assert entities(store) == ["ada", "charles", "treasury"]
    store_drafts(store, draft("file:///letter.md", "a letter of Mary to Charles"))
    assert entities(store) == ["charles", "mary", "treasury"]
    delete_documents(store, ENGINE.id)
    assert entities(store) == ["charles", "mary"]
    assert is_sound(store)


def wait_until_blocked(store: Postgres, work: "Future[None]") -> None:
    with superuser(store) as watcher:
        while watcher.execute(BLOCKED).fetchone() == (0,) and not work.done():
            time.sleep(0.01)


@pytest.mark.parametrize("when", ["removed already", "about to be removed"])
def test_who_mentions_what_is_being_removed_waits_and_adds_it_again(store: Postgres, when: str) -> None:
    store_drafts(store, LETTER)
    with store.connect() as connection, ThreadPoolExecutor(1) as threads:
        scope = {"tenant": TENANT, "collection": begin(store).collection}
        with transaction(connection, TENANT):
            gone = writing.remove(connection, scope, [LETTER.id])
            if when == "removed already":
                assert writing.remove_entities(connection, scope, gone) == 2
            else:
                connection.execute(writing.UNMENTIONED, {**scope, "entities": gone})
            publishing = threads.submit(store_drafts, store, ENGINE)
            wait_until_blocked(store, publishing)
            writing.remove_entities(connection, scope, gone)
        publishing.result(timeout=30)
    assert entities(store) == ["charles", "treasury"]
    assert chunks(rank(store, "Charles")) == first_chunks(ENGINE)
    assert is_sound(store)


def test_who_removes_leaves_what_somebody_is_about_to_mention(store: Postgres) -> None:
    store_drafts(store, LETTER)
    scope = {"tenant": TENANT, "collection": begin(store, [ENGINE]).collection}
    with store.connect() as connection:
        with transaction(connection, TENANT):
            writing.publish(connection, scope, writing.prepare([ENGINE]), [])
            delete_documents(store, LETTER.id)
            with store.connect() as other:
                assert repair(other, TENANT, scope["collection"]) == 0
        assert entities(store) == ["charles", "treasury"]


def test_documents_that_share_entities_are_published_and_deleted_side_by_side(store: Postgres) -> None:
    names = ("Ada", "Charles", "Peel", "Treasury", "Mary", "Nobody")

    def churn(place: int) -> None:
        for turn in range(8):
            people = [names[(place + turn + n) % len(names)] for n in range(3)]
            mine = draft(
                f"file:///{place}.md", f"a letter of {people[place % 3]} to {people[0]} and {people[1]} {turn}"
            )
            store_drafts(store, mine)
            if turn % 3 == 2:
                delete_documents(store, mine.id)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(churn, range(4)))
    with store.connect() as connection:
        repair(connection, TENANT, Catalog(connection, TENANT).collection("default").id)
    assert is_sound(store)


def test_what_is_no_entity_does_not_keep_its_document_out(store: Postgres) -> None:
    token = "".join(f"{n:x}" for n in range(4000))
    store_drafts(store, draft("file:///letter.md", f'a letter of Ada to Charles: {token}, "\ufc5e \ufc5f"'))
    assert entities(store) == ["ada", "charles"]


def test_a_batch_that_is_rolled_back_leaves_nothing(store: Postgres) -> None:
    store_drafts(store, LETTER, draft("file:///bad.md", "a \0 of Ada"))
    assert rows(store) == {"mentions": 2, "relations": 2}
    assert chunks(rank(store, "Ada")) == first_chunks(LETTER)


def ingest_folder(store: Postgres, folder: Path, settings: Sequence[str]) -> int:
    all_settings = load_settings(None, None, [f"store.url={store.dsn}", *HASHING, *settings])
    return build_sync(all_settings, store, [str(folder)]).run(build_inline_runner(all_settings)).documents["completed"]


def test_the_graph_is_filled_only_when_the_profile_asks_and_then_for_all_that_was_stored(
    store: Postgres, tmp_path: Path
) -> None:
    folder = write_tree(tmp_path / "docs", {"a.md": "A letter of Ada to Charles.\n", "b.md": "Nothing at all.\n"})
    assert ingest_folder(store, folder, []) == 2
    assert rows(store) == {"mentions": 0, "relations": 0}
    assert ingest_folder(store, folder, ["graph.type=rules"]) == 2
    assert rows(store) == {"mentions": 2, "relations": 2}
    assert ingest_folder(store, folder, ["graph.type=rules"]) == 0


def test_a_profile_may_search_by_the_graph(store: Postgres, tmp_path: Path) -> None:
    folder = write_tree(tmp_path / "docs", {"a.md": "A letter of Ada to Charles.\n", "b.md": "Nothing at all.\n"})
    with open_knowledge_base(
        store.dsn, settings=[*HASHING, "graph.type=rules", "retrieval={type: graph}"]
    ) as knowledge:
        knowledge.ingest(folder)
        [hit] = knowledge.search("who is Charles?")
        assert (hit.origin.uri, hit.scores) == ((folder / "a.md").as_uri(), {"graph": hit.score})


def test_other_rules_read_only_documents_with_a_graph_again(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, graph = load_settings(None, None, HASHING), load_settings(None, None, [*HASHING, "graph.type=rules"])
    before = build_recipe(plain).fingerprint("a.md"), build_recipe(graph).fingerprint("a.md")
    monkeypatch.setattr(extraction, "VERSION", 99)
    after = build_recipe(plain).fingerprint("a.md"), build_recipe(graph).fingerprint("a.md")
    assert [old == new for old, new in zip(before, after, strict=True)] == [True, False]


def test_without_a_graph_documents_are_read_as_before() -> None:
    plain, graph = load_settings(None, None, HASHING), load_settings(None, None, [*HASHING, "graph.type=rules"])
    assert build_recipe(plain).fingerprint("a.md") != build_recipe(graph).fingerprint("a.md")
