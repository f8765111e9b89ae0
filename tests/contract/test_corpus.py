"""What a corpus promises, whether it is the one in Postgres or the one that other tests use in its place."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any, Protocol, TypeVar
from uuid import UUID

import numpy as np
import pytest
from drafts import MODIFIED_NS, OTHER_SPACE, SPACE, TENANT, draft, draft_with_failure, same_draft, vector
from fakes.corpus import MemoryCorpus
from targets import begin, superuser

from rag_core.errors import NotFoundError, SpaceError
from rag_core.storage.corpus import CorpusReader
from rag_core.storage.filters import parse_filter
from rag_core.storage.maintenance import Maintenance
from rag_core.storage.postgres import Postgres
from rag_core.storage.publishing import CorpusWriter
from rag_core.types import Draft, Hit, Query, Space, text_hash

T = TypeVar("T")
OTHER_TENANT = "another-tenant"
QUERY = Query(text="", tenant=TENANT)


class Corpus(Protocol):
    """The two corpora, as these tests need them."""

    def writer(self, tenant: str = TENANT, collection: str = "default") -> Any:
        """A writer of a new run, which is higher than all before it."""
        ...

    def ask(self, question: Callable[[Any], Awaitable[T]]) -> T:
        """Runs the question with a reader."""
        ...

    def restrict(self, document_id: UUID, groups: Sequence[str]) -> None: ...


class InMemory:
    def __init__(self) -> None:
        self._corpus = MemoryCorpus(tenant=TENANT, collection="default", space=SPACE)
        self._runs = count(1)

    def writer(self, tenant: str = TENANT, collection: str = "default") -> Any:
        return replace(self._corpus, tenant=tenant, collection=collection, run=next(self._runs))

    def ask(self, question: Callable[[Any], Awaitable[T]]) -> T:
        return _run(question(self._corpus))

    def restrict(self, document_id: UUID, groups: Sequence[str]) -> None:
        self._corpus.restrict(document_id, groups)


class InPostgres:
    def __init__(self, store: Postgres) -> None:
        self._store = store
        self._writers: list[CorpusWriter] = []
        begin(store)

    def writer(self, tenant: str = TENANT, collection: str = "default") -> Any:
        self._writers.append(begin(self._store, tenant=tenant, collection=collection).open())
        return self._writers[-1]

    def ask(self, question: Callable[[Any], Awaitable[T]]) -> T:
        async def run_with_reader() -> T:
            reader = CorpusReader(self._store)
            try:
                return await question(reader)
            finally:
                await reader.close()

        return _run(run_with_reader())

    def restrict(self, document_id: UUID, groups: Sequence[str]) -> None:
        with superuser(self._store) as connection:
            connection.execute("update documents set access = %s where id = %s", [list(groups), document_id])

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


def _run(work: Awaitable[T]) -> T:
    async def run() -> T:
        return await work

    return asyncio.run(run())


class Indexed(InPostgres):
    """A corpus in Postgres that has an index of its vectors, even if they are few."""

    def ask(self, question: Callable[[Any], Awaitable[T]]) -> T:
        Maintenance(build_at=1).run(self._store, TENANT)
        return super().ask(question)


@contextmanager
def in_postgres(request: pytest.FixtureRequest) -> Iterator[InPostgres]:
    corpus = (Indexed if request.param == "indexed" else InPostgres)(request.getfixturevalue("store"))
    yield corpus
    corpus.close()


@pytest.fixture(params=["memory", pytest.param("postgres", marks=pytest.mark.postgres)])
def corpus(request: pytest.FixtureRequest) -> Iterator[Corpus]:
    if request.param == "memory":
        yield InMemory()
        return
    in_postgres = InPostgres(request.getfixturevalue("store"))
    yield in_postgres
    in_postgres.close()


def search_dense(corpus: Corpus, text: str, k: int = 100, space: Space = SPACE, query: Query = QUERY) -> list[Hit]:
    async def fetch_hits(reader: Any) -> list[Hit]:
        async with reader.snapshot(query):
            return list(await reader.fetch_hits(query, "dense", await reader.rank_dense(query, vector(text), space, k)))

    return corpus.ask(fetch_hits)


def texts(corpus: Corpus, **query: Any) -> set[str]:
    return {hit.chunk.text for hit in search_dense(corpus, "anything", query=replace(QUERY, **query))}


def hashes(*drafts: Draft) -> list[bytes]:
    return [text_hash(chunk.embedded_text) for draft in drafts for chunk in draft.chunks]


def test_what_was_published_is_read_back_as_it_was(corpus: Corpus) -> None:
    about = {"authors": ["Ana", "Bo"], "year": 2024, "score": 0.5, "open": True, "note": "ä€😀\n"}
    note = draft("file:///a.md", "Zwölf Boxkämpfer", "😀 second", metadata=about, prefix="Title > Part")
    corpus.writer().publish([note])
    best, other = search_dense(corpus, "Title > Part\n😀 second")
    assert (other.chunk, best.chunk) == note.chunks
    assert (best.origin.uri, best.origin.title, best.origin.metadata) == ("file:///a.md", "A title", about)
    assert best.origin.updated_at is not None
    assert best.origin.updated_at.timestamp() == MODIFIED_NS / 1e9
    assert best.score == best.scores["dense"] == pytest.approx(1.0, abs=1e-3)


def test_vectors_are_known_again_by_the_text_that_was_embedded(corpus: Corpus) -> None:
    note = draft("file:///a.md", "one", "two", prefix="Title")
    writer = corpus.writer()
    writer.publish([note])
    vectors_by_hash = writer.find_vectors([*hashes(note), text_hash("one"), text_hash("three")])
    assert vectors_by_hash.keys() == set(hashes(note))
    np.testing.assert_allclose(np.stack([vectors_by_hash[key] for key in hashes(note)]), note.vectors, atol=1e-3)


def test_vectors_are_known_in_every_collection_of_the_tenant_and_to_no_other_tenant(corpus: Corpus) -> None:
    note = draft("file:///a.md", "one")
    corpus.writer().publish([note])
    assert corpus.writer(collection="second").find_vectors(hashes(note)).keys() == set(hashes(note))
    assert corpus.writer(tenant=OTHER_TENANT).find_vectors(hashes(note)) == {}


def test_publishing_the_same_draft_again_changes_nothing(corpus: Corpus) -> None:
    writer, note = corpus.writer(), draft("file:///a.md", "one", "two")
    writer.publish([note])
    before = search_dense(corpus, "one")
    writer.publish([note])
    corpus.writer().publish([note])
    assert search_dense(corpus, "one") == before


def test_an_older_run_changes_nothing(corpus: Corpus) -> None:
    older, newer = corpus.writer(), corpus.writer()
    newer.publish([draft("file:///a.md", "new")])
    note = draft("file:///a.md", "old")
    older.publish([note])
    older.publish([draft_with_failure(note)])
    older.delete([note.id])
    assert texts(corpus) == {"new"}


def test_the_run_that_wrote_a_document_cannot_delete_it_again(corpus: Corpus) -> None:
    writer, note = corpus.writer(), draft("file:///a.md", "one")
    writer.publish([note])
    writer.delete([note.id])
    assert texts(corpus) == {"one"}


def test_unchanged_chunks_keep_their_ids_when_their_document_changes_around_them(corpus: Corpus) -> None:
    first, second = draft("file:///a.md", "one", "two", "three"), draft("file:///a.md", "new", "three", "one")
    corpus.writer().publish([first])
    corpus.writer().publish([second])
    chunks = sorted((hit.chunk for hit in search_dense(corpus, "new")), key=lambda chunk: chunk.ordinal)
    assert tuple(chunks) == second.chunks
    assert [chunk.id for chunk in chunks[1:]] == [first.chunks[2].id, first.chunks[0].id]


def test_a_text_that_stands_twice_in_a_document_is_two_chunks(corpus: Corpus) -> None:
    corpus.writer().publish([draft("file:///a.md", "twice", "twice", "once")])
    assert search_dense(corpus, "once")[0].chunk.ordinal == 2
    corpus.writer().publish([draft("file:///a.md", "once", "twice")])
    assert sorted((hit.chunk.ordinal, hit.chunk.text) for hit in search_dense(corpus, "once")) == [
        (0, "once"),
        (1, "twice"),
    ]


def test_a_chunk_under_a_new_heading_keeps_its_id_and_gets_a_new_vector(corpus: Corpus) -> None:
    corpus.writer().publish([draft("file:///a.md", "one", prefix="Old")])
    [before] = search_dense(corpus, "Old\none")
    corpus.writer().publish([draft("file:///a.md", "one", prefix="New")])
    [after] = search_dense(corpus, "New\none")
    assert (after.chunk.id, after.chunk.prefix) == (before.chunk.id, "New")
    assert after.score == pytest.approx(1.0, abs=1e-3)


def test_a_document_with_the_bytes_that_are_stored_only_gets_its_new_time(corpus: Corpus) -> None:
    note = draft("file:///a.md", "one", metadata={"kind": "memo"})
    corpus.writer().publish([note])
    corpus.writer().publish([same_draft(note, modified_ns=MODIFIED_NS + 10**9)])
    [hit] = search_dense(corpus, "one")
    assert hit.chunk == note.chunks[0]
    assert hit.origin.metadata == {"kind": "memo"}
    assert hit.origin.updated_at is not None
    assert hit.origin.updated_at.timestamp() == MODIFIED_NS / 1e9 + 1


def test_a_document_that_fails_for_the_moment_is_searched_as_it_was(corpus: Corpus) -> None:
    note = draft("file:///a.md", "one", "two", metadata={"kind": "memo"})
    corpus.writer().publish([note])
    corpus.writer().publish([draft_with_failure(note, retryable=True)])
    hits = search_dense(corpus, "one", query=replace(QUERY, filters=parse_filter(comparison("kind", "eq", "memo"))))
    assert [hit.chunk for hit in hits] == list(note.chunks)
    assert (hits[0].origin.title, hits[0].origin.metadata) == ("A title", {"kind": "memo"})


@pytest.mark.parametrize("skipped", [False, True], ids=["failed", "skipped"])
def test_a_document_that_fails_for_good_is_searched_no_more(corpus: Corpus, skipped: bool) -> None:
    note, other = draft("file:///a.md", "one"), draft("file:///b.md", "other")
    corpus.writer().publish([note, other])
    corpus.writer().publish([draft_with_failure(note, retryable=True)])
    corpus.writer().publish([draft_with_failure(note, skipped=skipped)])
    assert texts(corpus) == {"other"}
    assert corpus.writer().find_vectors(hashes(note)) == {}
    corpus.writer().publish([note])
    assert texts(corpus) == {"one", "other"}


def test_what_is_deleted_leaves_nothing_behind(corpus: Corpus) -> None:
    note, other = draft("file:///a.md", "one"), draft("file:///b.md", "other")
    corpus.writer().publish([note, other])
    corpus.writer().delete([note.id])
    assert texts(corpus) == {"other"}
    assert corpus.writer().find_vectors(hashes(note, other)).keys() == set(hashes(other))


@pytest.mark.parametrize(
    "corpus",
    ["memory", *(pytest.param(kind, marks=pytest.mark.postgres) for kind in ("postgres", "indexed"))],
    indirect=True,
)
def test_nearest_is_exact(corpus: Corpus) -> None:
    notes = [draft(f"file:///{n}.md", *(f"text {n} {part}" for part in range(3))) for n in range(20)]
    corpus.writer().publish(notes)
    ids = [chunk.id for note in notes for chunk in note.chunks]
    stored = np.concatenate([note.vectors for note in notes if note.vectors is not None]).astype(np.float16)
    products = stored.astype(np.float64) @ vector("question").astype(np.float16).astype(np.float64)
    ranking = [(ids[place], products[place]) for place in np.argsort(-products)]
    for k in (1, 7, 60, 100):
        hits = search_dense(corpus, "question", k)
        assert [hit.chunk.id for hit in hits] == [id for id, _ in ranking[:k]]
        assert [hit.score for hit in hits] == pytest.approx([score for _, score in ranking[:k]], abs=1e-5)


def test_equal_scores_are_ranked_by_id(corpus: Corpus) -> None:
    corpus.writer().publish([draft(f"file:///{n}.md", "the same") for n in range(8)])
    hits = search_dense(corpus, "the same", k=5)
    assert [hit.chunk.id for hit in hits] == sorted(hit.chunk.id for hit in search_dense(corpus, "the same"))[:5]


def test_hits_come_in_the_order_of_the_ranking_without_those_that_are_gone(corpus: Corpus) -> None:
    note, gone = draft("file:///a.md", "one", "two"), draft("file:///b.md", "gone")
    corpus.writer().publish([note])
    ranking = [(note.chunks[1].id, 3.0), (gone.chunks[0].id, 2.0), (note.chunks[0].id, 1.0)]
    hits = corpus.ask(lambda reader: reader.fetch_hits(QUERY, "fused", ranking))
    assert [(hit.chunk.text, hit.scores) for hit in hits] == [("two", {"fused": 3.0}), ("one", {"fused": 1.0})]


def test_a_snapshot_stays_as_it_was_opened(corpus: Corpus) -> None:
    writer, note = corpus.writer(), draft("file:///a.md", "one")
    writer.publish([note])
    newer = corpus.writer()

    async def read_across_change(reader: Any) -> list[str]:
        async with reader.snapshot(QUERY):
            await reader.rank_dense(QUERY, vector("one"), SPACE, 1)
            newer.publish([draft("file:///a.md", "two")])
            ranking = await reader.rank_dense(QUERY, vector("one"), SPACE, 1)
            return [hit.chunk.text for hit in await reader.fetch_hits(QUERY, "dense", ranking)]

    assert corpus.ask(read_across_change) == ["one"]
    assert texts(corpus) == {"two"}


def test_a_snapshot_of_one_tenant_shows_nothing_to_another(corpus: Corpus) -> None:
    corpus.writer().publish([draft("file:///a.md", "mine")])
    corpus.writer(tenant=OTHER_TENANT).publish([draft("file:///a.md", "theirs", tenant=OTHER_TENANT)])
    theirs = replace(QUERY, tenant=OTHER_TENANT)

    async def read_within_snapshot(reader: Any) -> list[str]:
        async with reader.snapshot(QUERY):
            ranking = await reader.rank_dense(theirs, vector("mine"), SPACE, 10)
            return [hit.chunk.text for hit in await reader.fetch_hits(theirs, "dense", ranking)]

    assert corpus.ask(read_within_snapshot) == ["theirs"]


def test_a_snapshot_hides_what_the_current_caller_cannot_read(corpus: Corpus) -> None:
    note = draft("file:///a.md", "hidden")
    corpus.writer().publish([note])
    corpus.restrict(note.id, ["staff"])

    async def read_within_staff_snapshot(reader: Any) -> list[tuple[UUID, float]]:
        async with reader.snapshot(replace(QUERY, groups=("staff",))):
            return list(await reader.rank_dense(QUERY, vector("hidden"), SPACE, 10))

    assert corpus.ask(read_within_staff_snapshot) == []


def test_tenants_and_collections_of_equal_names_and_uris_do_not_meet(corpus: Corpus) -> None:
    corpus.writer().publish([draft("file:///a.md", "mine")])
    corpus.writer(collection="second").publish([draft("file:///a.md", "my second", collection="second")])
    corpus.writer(tenant=OTHER_TENANT).publish([draft("file:///a.md", "theirs", tenant=OTHER_TENANT)])
    assert texts(corpus) == {"mine"}
    assert texts(corpus, collection="second") == {"my second"}
    assert texts(corpus, tenant=OTHER_TENANT) == {"theirs"}


def test_a_restricted_document_is_found_by_its_groups_only(corpus: Corpus) -> None:
    note, open_note = draft("file:///a.md", "for some"), draft("file:///b.md", "for all")
    corpus.writer().publish([note, open_note])
    corpus.restrict(note.id, ["staff", "board"])
    assert texts(corpus) == {"for all"}
    assert texts(corpus, groups=("guests",)) == {"for all"}
    assert texts(corpus, groups=("guests", "board")) == {"for all", "for some"}


def test_the_readers_of_a_document_are_those_of_its_last_version(corpus: Corpus) -> None:
    corpus.writer().publish([replace(draft("file:///a.md", "for some"), access=("staff",))])
    assert texts(corpus) == set()
    assert texts(corpus, groups=("staff",)) == {"for some"}
    corpus.writer().publish([draft("file:///a.md", "for all")])
    assert texts(corpus) == {"for all"}


@pytest.mark.parametrize("stranger", [{"collection": "none"}, {"tenant": OTHER_TENANT}], ids=["name", "tenant"])
def test_a_collection_that_the_tenant_does_not_have_is_not_found(corpus: Corpus, stranger: dict[str, str]) -> None:
    with pytest.raises(NotFoundError, match=f"no collection '{stranger.get('collection', 'default')}'"):
        texts(corpus, **stranger)


def test_vectors_of_another_space_are_not_compared(corpus: Corpus) -> None:
    corpus.writer().publish([draft("file:///a.md", "one")])
    with pytest.raises(SpaceError, match=r"vectors of test-encoder\b.* other-encoder"):
        search_dense(corpus, "one", space=OTHER_SPACE)


def comparison(key: str, type: str, value: object) -> dict[str, object]:
    return {"key": key, "type": type, "value": value}


ABOUT: dict[str, Any] = {
    "a": {"kind": "memo", "year": 2023, "open": True, "tags": ["red", "green"], "date": "2023-05-01", "sizes": [1, 9]},
    "b": {"kind": "report", "year": 2024.5, "open": False, "tags": ["green"], "date": "2024-01-31", "sizes": [4]},
    "c": {"kind": "Report", "year": 2025, "tags": [], "date": "2024-02-01T10:00:00+00:00"},
    "d": {},
}


@pytest.mark.parametrize(
    "passing",
    [
        pytest.param(
            {
                ("kind", "eq", "report"): "b",
                ("kind", "ne", "report"): "acd",
                ("kind", "gt", "memo"): "b",
                ("kind", "gte", "memo"): "ab",
                ("kind", "lt", "memo"): "c",
                ("kind", "lte", "memo"): "ac",
                ("kind", "in", ("memo", "report", "none")): "ab",
                ("kind", "nin", ("memo", "report", "none")): "cd",
                ("kind", "eq", ""): "",
                ("kind", "eq", "'; drop table rag.documents; --"): "",
                ("k%ind", "eq", "report"): "",
            },
            id="strings",
        ),
        pytest.param(
            {
                ("year", "eq", 2024.5): "b",
                ("year", "eq", 2023.0): "a",
                ("year", "ne", 2023): "bcd",
                ("year", "gt", 2023): "bc",
                ("year", "gte", 2024.5): "bc",
                ("year", "lt", 2024.5): "a",
                ("year", "lte", 2024.5): "ab",
                ("year", "in", (2023, 2024.5)): "ab",
                ("year", "nin", (2023, 2025)): "bd",
                ("year", "eq", "2023"): "",
                ("kind", "gt", 0): "",
            },
            id="numbers",
        ),
        pytest.param(
            {
                ("open", "eq", True): "a",
                ("open", "eq", False): "b",
                ("open", "ne", True): "bcd",
                ("open", "in", (True, False)): "ab",
                ("open", "nin", (False,)): "acd",
                ("open", "gte", 0): "",
                ("year", "nin", (True,)): "abcd",
            },
            id="booleans",
        ),
        pytest.param(
            {
                ("tags", "eq", "green"): "ab",
                ("tags", "ne", "red"): "bcd",
                ("tags", "in", ("red", "blue")): "a",
                ("tags", "nin", ("red", "blue")): "bcd",
                ("sizes", "gt", 4): "a",
                ("sizes", "lte", 4): "ab",
                ("sizes", "eq", 9): "a",
            },
            id="lists",
        ),
        pytest.param(
            {
                ("date", "gte", "2024-01-01"): "bc",
                ("date", "lt", "2024-02-01"): "ab",
                ("date", "lte", "2024-02-01"): "ab",
                ("date", "gt", "2024-02-01T09:59:59+00:00"): "c",
                ("updated_at", "gte", "2023-11-14"): "abcd",
                ("updated_at", "gte", "2023-11-15"): "",
            },
            id="dates",
        ),
        pytest.param(
            {
                ("uri", "eq", "file:///a.md"): "a",
                ("title", "eq", "A title"): "abcd",
                ("media_type", "ne", "text/plain"): "",
                ("language", "in", ("de", "en")): "abcd",
            },
            id="what every document has",
        ),
    ],
)
def test_a_comparison_passes(corpus: Corpus, passing: dict[tuple[str, str, Any], str]) -> None:
    publish_about(corpus)
    assert {
        case: matching_texts(corpus, comparison(case[0], case[1], tuple_to_list(case[2]))) for case in passing
    } == passing


def test_comparisons_are_combined(corpus: Corpus) -> None:
    publish_about(corpus)
    green, memo = comparison("tags", "eq", "green"), comparison("kind", "eq", "memo")
    late = comparison("year", "gt", 2024)
    assert matching_texts(corpus, all_of(green, late)) == "b"
    assert matching_texts(corpus, any_of(memo, late)) == "abc"
    assert matching_texts(corpus, all_of(green, any_of(memo, late), comparison("open", "ne", False))) == "a"
    assert matching_texts(corpus, any_of(all_of(memo, late), all_of(green, late))) == "b"
    assert matching_texts(corpus, all_of(memo)) == "a"


PLACES: dict[str, dict[str, Any]] = {
    "a": {"page": 1, "section": "Keys"},
    "b": {"page": 5, "section": "Keys > Rotation"},
    "c": {"page": 12},
    "d": {},
}


@pytest.mark.parametrize(
    "passing",
    [
        pytest.param(
            {
                ("page", "eq", 5): "b",
                ("page", "eq", 12.0): "c",
                ("page", "ne", 5): "acd",
                ("page", "gt", 5): "c",
                ("page", "gte", 5): "bc",
                ("page", "gt", 4.5): "bc",
                ("page", "lt", 5): "a",
                ("page", "lte", 5): "ab",
                ("page", "lt", 1e12): "abc",
                ("page", "in", (1, 12, 13)): "ac",
                ("page", "in", (1, 12.5)): "a",
                ("page", "nin", (1, 12)): "bd",
                ("page", "eq", "5"): "",
                ("page", "ne", "5"): "abcd",
                ("page", "eq", True): "",
            },
            id="pages",
        ),
        pytest.param(
            {
                ("section", "eq", "Keys"): "a",
                ("section", "ne", "Keys"): "bcd",
                ("section", "gte", "Keys > "): "b",
                ("section", "in", ("Keys", "Keys > Rotation")): "ab",
                ("section", "nin", ("Keys",)): "bcd",
                ("section", "gt", 0): "",
            },
            id="sections",
        ),
    ],
)
def test_a_comparison_with_its_place_is_the_chunks_own(
    corpus: Corpus, passing: dict[tuple[str, str, Any], str]
) -> None:
    shadowed = {"page": 5, "section": "Keys"}
    notes = [draft(f"file:///{name}.md", name, metadata=shadowed, about_chunks=at) for name, at in PLACES.items()]
    corpus.writer().publish(notes)
    assert {
        case: matching_texts(corpus, comparison(case[0], case[1], tuple_to_list(case[2]))) for case in passing
    } == passing


def test_places_are_combined_with_metadata(corpus: Corpus) -> None:
    corpus.writer().publish([draft("file:///a.md", "a", metadata={"kind": "memo"}, about_chunks={"page": 2})])
    corpus.writer().publish([draft("file:///b.md", "b", metadata={"kind": "memo"}, about_chunks={"page": 3})])
    memo, late = comparison("kind", "eq", "memo"), comparison("page", "gte", 3)
    assert matching_texts(corpus, all_of(memo, late)) == "b"
    assert matching_texts(corpus, any_of(memo, late)) == "ab"


def test_a_chunk_that_moves_to_another_page_is_found_there(corpus: Corpus) -> None:
    corpus.writer().publish([draft("file:///a.md", "a", about_chunks={"page": 2})])
    corpus.writer().publish([draft("file:///a.md", "a", about_chunks={"page": 3})])
    assert matching_texts(corpus, comparison("page", "eq", 2)) == ""
    assert matching_texts(corpus, comparison("page", "eq", 3)) == "a"


def test_a_hit_has_its_neighbours_in_text_order(corpus: Corpus) -> None:
    note = draft("file:///a.md", "zero", "one", "two", "three", "four")
    corpus.writer().publish([note, draft("file:///b.md", "alone")])

    async def fetch_neighbours(reader: Any) -> list[list[str]]:
        async with reader.snapshot(QUERY):
            ranking = [(note.chunks[at].id, 1.0) for at in (2, 0)]
            ranking.append((draft("file:///b.md", "alone").chunks[0].id, 0.5))
            hits = await reader.fetch_hits(QUERY, "dense", ranking)
            neighbours = await reader.fetch_neighbours(QUERY, hits, before=1, after=2)
            assert neighbours[0][0] == note.chunks[1]
            return [[chunk.text for chunk in chunks] for chunks in neighbours]

    assert corpus.ask(fetch_neighbours) == [["one", "three", "four"], ["one", "two"], []]


def test_neighbours_are_of_the_version_that_was_searched(corpus: Corpus) -> None:
    writer, note = corpus.writer(), draft("file:///a.md", "one", "two")
    writer.publish([note])
    newer = corpus.writer()

    async def read_across_change(reader: Any) -> list[str]:
        async with reader.snapshot(QUERY):
            hits = await reader.fetch_hits(QUERY, "dense", [(note.chunks[0].id, 1.0)])
            newer.publish([draft("file:///a.md", "one", "changed")])
            [chunks] = await reader.fetch_neighbours(QUERY, hits, before=1, after=1)
            return [chunk.text for chunk in chunks]

    assert corpus.ask(read_across_change) == ["two"]


def test_filters_follow_the_metadata_of_the_newest_version(corpus: Corpus) -> None:
    corpus.writer().publish([draft("file:///a.md", "a", metadata={"kind": "memo", "old": 1})])
    corpus.writer().publish([draft("file:///a.md", "a", metadata={"kind": "report"})])
    assert matching_texts(corpus, comparison("kind", "eq", "memo")) == ""
    assert matching_texts(corpus, comparison("old", "gt", 0)) == ""
    assert matching_texts(corpus, comparison("kind", "eq", "report")) == "a"


def publish_about(corpus: Corpus) -> None:
    corpus.writer().publish([draft(f"file:///{name}.md", name, metadata=about) for name, about in ABOUT.items()])


def tuple_to_list(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def matching_texts(corpus: Corpus, filter: dict[str, object]) -> str:
    return "".join(sorted(texts(corpus, filters=parse_filter(filter))))


def all_of(*filters: dict[str, object]) -> dict[str, object]:
    return {"type": "and", "filters": list(filters)}


def any_of(*filters: dict[str, object]) -> dict[str, object]:
    return {"type": "or", "filters": list(filters)}
