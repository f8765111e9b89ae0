"""The Python door, with the hashing embedder."""

import asyncio
import gc
import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from fakes.openai_endpoint import run_endpoint, stream_response
from trees import HASHING, write

from rag_core import KnowledgeBase, open_knowledge_base
from rag_core.errors import ConfigError, DocumentError, FilterError, NotFoundError, StoreError
from rag_core.settings import load_settings
from rag_core.storage.catalog import Catalog
from rag_core.storage.postgres import Postgres
from rag_core.types import DEFAULT_TENANT, Chunk, Document, GivenChunk, Hit, Matrix, document_id
from rag_core.wiring.models import RemoteModels

pytestmark = pytest.mark.postgres

QUESTION = "how do I rotate the keys?"
TREE = {
    "keys.md": "# Rotating the keys\n\nThe keys are rotated every ninety days. How to rotate: ask the operator.\n",
    "gates.md": "# Gates\n\nThe sluice gates are opened at spring tide.\n",
    "tore.md": "# Tore\n\nDie Schleusentore werden bei Springflut von zwei Leuten geöffnet, nie von einem.\n",
}


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    return write(tmp_path / "docs", TREE)


@pytest.fixture
def knowledge(store: Postgres, docs: Path) -> Iterator[KnowledgeBase]:
    with open_knowledge_base(store.dsn, settings=HASHING) as knowledge:
        knowledge.ingest(docs)
        yield knowledge


def titles(hits: list[Hit]) -> list[str]:
    return [hit.origin.title for hit in hits]


@pytest.mark.slow
def test_a_folder_is_searched_in_six_lines(store: Postgres, docs: Path) -> None:
    with open_knowledge_base(store.dsn, settings=HASHING) as kb:
        report = kb.ingest(docs)
        hits = kb.search(QUESTION, k=2)
    assert report.documents["completed"] == 3
    assert titles(hits)[0] == "Rotating the keys"
    assert len(hits) == 2
    assert hits[0].score > hits[1].score
    assert hits[0].scores.keys() == {"dense", "bm25", "fused"}
    assert hits[0].scores["fused"] == hits[0].score


def test_a_hit_is_the_span_of_its_document_that_it_says_it_is(knowledge: KnowledgeBase, docs: Path) -> None:
    (hit,) = knowledge.search(QUESTION, k=1)
    assert hit.origin.uri == (docs / "keys.md").as_uri()
    assert (docs / "keys.md").read_text()[hit.chunk.start : hit.chunk.end] == hit.chunk.text
    assert hit.origin.updated_at is not None


def test_a_stored_document_is_read_with_its_chunks(knowledge: KnowledgeBase, docs: Path) -> None:
    text, chunks = knowledge.read((docs / "keys.md").as_uri())
    assert text == TREE["keys.md"]
    assert [chunk.ordinal for chunk in chunks] == list(range(len(chunks)))
    assert all(text[chunk.start : chunk.end] == chunk.text for chunk in chunks)
    assert [hit.chunk for hit in knowledge.search(QUESTION, k=1)] == chunks


def test_a_document_that_a_sync_replaces_while_it_is_read_is_read_in_one_version(
    knowledge: KnowledgeBase, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, read_text = (docs / "keys.md").as_uri(), Catalog.content
    changed = TREE["keys.md"].replace("ninety", "forty-five")

    def replace_document(catalog: Catalog, *arguments: Any) -> str:
        write(docs, {"keys.md": changed})
        assert knowledge.ingest(docs).documents["completed"] == 1
        return read_text(catalog, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Catalog, "content", replace_document)
        text, chunks = knowledge.read(uri)
    assert text == TREE["keys.md"]
    assert all(text[chunk.start : chunk.end] == chunk.text for chunk in chunks)
    assert knowledge.read(uri)[0] == changed


def test_a_document_that_is_not_stored_cannot_be_read(knowledge: KnowledgeBase, docs: Path) -> None:
    uri = (docs / "missing.md").as_uri()
    with pytest.raises(NotFoundError, match=f"'default' has no text of {uri}, or only members of other groups"):
        knowledge.read(uri)
    with pytest.raises(NotFoundError, match="'other'"):
        knowledge.read((docs / "keys.md").as_uri(), collection="other")


def test_a_document_of_a_group_is_read_only_by_its_members(knowledge: KnowledgeBase) -> None:
    knowledge.add([Document(uri="pay", text="Wages are paid on Fridays.", access=("staff",))], "pay")
    with pytest.raises(NotFoundError, match="has no text of push:///pay, or only members"):
        knowledge.read("push:///pay", "pay")
    assert knowledge.read("push:///pay", "pay", groups=["staff"])[0] == "Wages are paid on Fridays."


def test_any_text_is_judged_by_passages(knowledge: KnowledgeBase) -> None:
    passages = knowledge.ask(QUESTION).passages[:1]
    verdict = knowledge.judge("The keys are rotated every ninety days. The keys weigh 45 grams.", passages)
    assert [claim.grade for claim in verdict.claims] == ["supported", "unsupported"]
    assert verdict.claims[1].reason == "45 is not in the passages"
    assert verdict.method == "lexical proxy"


def test_it_works_also_where_an_event_loop_runs(store: Postgres, docs: Path) -> None:
    async def notebook() -> list[Hit]:
        with open_knowledge_base(store.dsn, settings=HASHING) as kb:
            kb.ingest(docs)
            return kb.search(QUESTION, k=1)

    assert titles(asyncio.run(notebook())) == ["Rotating the keys"]


def test_several_threads_ask_at_once(knowledge: KnowledgeBase) -> None:
    questions = [QUESTION, "when are the gates opened at spring tide?"] * 16
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda question: knowledge.search(question, k=1), questions))
    assert [titles(hits) for hits in answers] == [["Rotating the keys"], ["Gates"]] * 16


def test_an_explained_search_tells_its_stages(knowledge: KnowledgeBase) -> None:
    hits, stages = knowledge.explain(QUESTION, k=1)
    assert titles(hits) == ["Rotating the keys"]
    assert {report.stage for report in stages} >= {"embed", "dense", "bm25", "fuse", "fetch"}
    assert not [report for report in stages if report.error]
    assert all(report.ranking[0] == hits[0].chunk.id for report in stages if report.ranking)


def test_the_connections_to_an_endpoint_are_kept_until_it_is_closed(store: Postgres, docs: Path) -> None:
    with run_endpoint(stream_response("Every ninety days [1].")) as endpoint:
        written = f"generation={{type: openai, model: llama, base_url: '{endpoint.url}'}}"
        with open_knowledge_base(store.dsn, settings=[*HASHING, written]) as kb:
            kb.ingest(docs)
            for _ in range(2):
                assert kb.ask(QUESTION).answer.text.startswith("Every ninety days")
            assert endpoint.connections == 1
            assert not endpoint.disconnected.is_set()
        assert endpoint.disconnected.wait(60)


@pytest.mark.slow
def test_a_question_on_another_subject_is_a_shift_and_a_reference_to_it_is_none(knowledge: KnowledgeBase) -> None:
    knowledge.ask(QUESTION, session_id="s")
    changed = knowledge.ask("sluice gates opened at spring tide?", session_id="s")
    followed = knowledge.ask("who opens them?", session_id="s")
    assert changed.understanding is not None
    assert followed.understanding is not None
    assert (changed.understanding.is_shift, followed.understanding.is_shift) == (True, False)
    (report,) = (report for report in changed.stages if report.stage == "topic_shift")
    assert report.figures == {"drift": changed.understanding.drift, "is_shift": True}
    assert [variant.weight for variant in changed.understanding.variants] == [1.0, 0.5]


def test_a_second_ingest_has_nothing_to_do(knowledge: KnowledgeBase, docs: Path) -> None:
    assert knowledge.ingest(str(docs)).documents["same"] == 3


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"key": "language", "type": "eq", "value": "de"}, {"Tore"}),
        ({"key": "language", "type": "ne", "value": "de"}, {"Gates", "Rotating the keys"}),
        ({"key": "title", "type": "in", "value": ["Gates", "Nothing"]}, {"Gates"}),
        ({"key": "updated_at", "type": "lt", "value": "2001"}, set()),
        (
            {
                "type": "and",
                "filters": [
                    {"key": "language", "type": "eq", "value": "de"},
                    {"key": "title", "type": "eq", "value": "Gates"},
                ],
            },
            set(),
        ),
    ],
)
def test_a_filter_leaves_only_documents_that_pass(
    knowledge: KnowledgeBase, filters: dict[str, object], found: set[str]
) -> None:
    assert set(titles(knowledge.search(QUESTION, filters=filters))) == found


def test_a_filter_that_the_grammar_does_not_allow_is_refused(knowledge: KnowledgeBase) -> None:
    with pytest.raises(FilterError, match="a filter of type 'eq' must have the keys"):
        knowledge.search(QUESTION, filters={"type": "eq", "keys": "language"})
    with pytest.raises(FilterError, match="a filter must be an object"):
        knowledge.search(QUESTION, filters=[])  # type: ignore[arg-type]


@pytest.mark.slow
def test_one_that_is_dropped_without_close_closes_its_connections(store: Postgres, docs: Path) -> None:
    kb = open_knowledge_base(store.dsn, settings=HASHING)
    kb.ingest(docs)
    kb.search(QUESTION)
    pool = kb._corpus._snapshots._pool
    del kb
    gc.collect()
    for thread in threading.enumerate():
        if thread.name == "close-knowledge-base":
            thread.join()
    assert pool.closed


@pytest.mark.slow
def test_a_script_ends_that_does_not_close_it(knowledge: KnowledgeBase, store: Postgres) -> None:
    script = f"""from rag_core import open_knowledge_base
kb = open_knowledge_base({store.dsn!r}, settings={HASHING!r})
print(kb.search({QUESTION!r}, k=1)[0].origin.title)"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "Rotating the keys\n"


def test_collections_are_apart(knowledge: KnowledgeBase, tmp_path: Path) -> None:
    other = write(tmp_path / "other", {"a.md": "# Elsewhere\n\nThe keys are rotated elsewhere.\n"})
    knowledge.ingest(other, collection="other")
    assert titles(knowledge.search(QUESTION, collection="other")) == ["Elsewhere"]
    assert "Elsewhere" not in titles(knowledge.search(QUESTION))


def test_a_collection_that_is_not_there_is_named(knowledge: KnowledgeBase) -> None:
    with pytest.raises(NotFoundError, match="no collection 'docz'"):
        knowledge.search(QUESTION, collection="docz")


def test_a_yaml_file_says_where_and_how(store: Postgres, docs: Path, tmp_path: Path) -> None:
    file = tmp_path / "rag.yaml"
    file.write_text(f"store: {{url: {store.dsn!r}}}\nembedding: {{type: hashing, dimension: 32}}\n")
    with open_knowledge_base(file) as kb:
        kb.ingest(docs)
        assert titles(kb.search(QUESTION, k=1)) == ["Rotating the keys"]


def test_a_store_that_does_not_answer_is_named_without_its_password() -> None:
    with pytest.raises(StoreError, match=r"cannot use the store at .*host=127\.0\.0\.1 port=1") as raised:
        open_knowledge_base("postgresql://me:secret@127.0.0.1:1/rag", settings=HASHING)
    assert "secret" not in str(raised.value)


def test_settings_that_do_not_fit_together_are_refused_before_anything_is_read(store: Postgres, docs: Path) -> None:
    with (
        open_knowledge_base(store.dsn, settings=[*HASHING, "chunking.tokens=600"]) as kb,
        pytest.raises(ConfigError, match="600"),
    ):
        kb.ingest(docs)


class Anywhere:
    """An embedder to whom all questions are one, and who notes them."""

    def __init__(self) -> None:
        self.questions: list[str] = []

    async def embed(self, texts: Sequence[str]) -> Matrix:
        self.questions += texts
        return np.tile(np.eye(1, 64, dtype=np.float32), (len(texts), 1))


def test_a_document_that_was_split_and_embedded_elsewhere_is_found(store: Postgres) -> None:
    text = "Keys are red.\n\nLocks are oiled."
    spans = [(0, 13), (15, 31)]
    chunks = [
        Chunk(id=UUID(int=0), document_id=UUID(int=0), ordinal=0, text=text[start:end], start=start, end=end)
        for start, end in spans
    ]
    settings = load_settings(overrides=[f"store.url={store.dsn}", *HASHING, "retrieval.type=dense"])
    with KnowledgeBase(settings, RemoteModels(embedder=Anywhere())) as kb:
        document = Document(uri="app://keys", text=text, title="Keys", metadata={"kind": "memo"})
        id = kb.store(document, chunks, np.eye(2, 64, dtype=np.float32), collection="apart", size=31)
        best, second = kb.search("anything", 2, "apart", {"key": "kind", "type": "eq", "value": "memo"})
    assert [hit.chunk.text for hit in (best, second)] == ["Keys are red.", "Locks are oiled."]
    assert [round(hit.score, 3) for hit in (best, second)] == [1.0, 0.0]
    assert best.chunk.document_id == id == document_id(DEFAULT_TENANT, "apart", "app://keys")
    assert (second.chunk.ordinal, second.origin.title) == (1, "Keys")


def test_a_document_that_no_row_can_hold_is_not_stored(knowledge: KnowledgeBase) -> None:
    text = "a\0b"
    chunk = Chunk(id=UUID(int=0), document_id=UUID(int=0), ordinal=0, text=text, start=0, end=3)
    with pytest.raises(DocumentError, match="0x00"):
        knowledge.store(Document(uri="app://bad", text=text), [chunk], np.eye(1, 64, dtype=np.float32))


def test_a_remote_embedder_reads_the_questions(store: Postgres, knowledge: KnowledgeBase) -> None:
    embedder = Anywhere()
    settings = load_settings(overrides=[f"store.url={store.dsn}", *HASHING])
    with KnowledgeBase(settings, RemoteModels(embedder=embedder)) as remote:
        assert len(remote.search(QUESTION, k=2)) == 2
    assert embedder.questions == [QUESTION]


def unit_vector(dimension: int, *components: int) -> tuple[float, ...]:
    """Length 1, with equal components at these positions."""
    return tuple(len(components) ** -0.5 if n in components else 0.0 for n in range(dimension))


def given(uri: str, text: str, *components: int, dimension: int = 64) -> Document:
    """A document of one chunk with a vector."""
    vector = unit_vector(dimension, *components)
    return Document(uri=uri, text=text, given=(GivenChunk(start=0, end=len(text), vector=vector),))


def stored_vectors(store: Postgres) -> list[tuple[str, list[float]]]:
    with store.connect() as connection:
        connection.execute("select set_config('app.tenant', %s, false)", [DEFAULT_TENANT])
        rows = connection.execute(
            "select c.text, v.embedding::vector::real[] from chunks c join vectors v on v.chunk_id = c.id"
            " order by c.text, 2"
        )
        return [(text, [round(x, 3) for x in vector]) for text, vector in rows]


def test_documents_are_added_with_their_own_vectors(store: Postgres) -> None:
    with open_knowledge_base(store.dsn, settings=HASHING) as kb:
        report = kb.add([given("https://x.org/a", "Gates.", 1), Document(uri="b", text="Keys are rotated yearly.")])
        assert report.documents["completed"] == 2
        assert report.chunks["embedded"] == 1
        (hit,) = [hit for hit in kb.search("gates", k=2) if hit.chunk.text == "Gates."]
        assert kb.add([given("https://x.org/a", "Gates.", 1)]).documents["completed"] == 0
        changed = kb.add([given("https://x.org/a", "Gates.", 2)])
    assert hit.origin.metadata["url"] == "https://x.org/a"
    assert (changed.documents["completed"], changed.chunks["embedded"]) == (1, 0)
    assert [vector.index(1.0) for text, vector in stored_vectors(store) if text == "Gates."] == [2]


def test_a_given_vector_is_not_reused_for_another_document(store: Postgres) -> None:
    with open_knowledge_base(store.dsn, settings=HASHING) as kb:
        kb.add([given("a", "Gates.", 1)])
        report = kb.add([Document(uri="b", text="Gates.", given=(GivenChunk(start=0, end=6),))])
        kb.add([given("c", "Gates.", 3)])
    assert report.chunks["embedded"] == 1
    first, second, third = (vector for _, vector in stored_vectors(store))
    assert sorted(vector.index(1.0) for vector in (first, second, third) if 1.0 in vector) == [1, 3]


def test_documents_that_do_not_fit_are_failures_and_the_others_are_added(store: Postgres) -> None:
    with open_knowledge_base(store.dsn, settings=HASHING) as kb:
        report = kb.add([given("a", "Gates.", 1, dimension=3), given("b", "Keys.", 1)])
    assert report.documents["completed"] == 1
    (failure,) = report.failures
    assert "must have the 64 dimensions of the collection's embedding model, got 3" in failure["reason"]


def test_the_lines_of_a_file_are_documents(store: Postgres, tmp_path: Path) -> None:
    path = tmp_path / "docs.jsonl"

    def write_lines(*lines: dict[str, object]) -> None:
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    gates = {"id": "a", "text": "Gates open.", "chunks": [{"text": "Gates open.", "vector": unit_vector(64, 5)}]}
    keys: dict[str, object] = {
        "id": "b",
        "title": "Keys",
        "text": "# Keys\n\nKeys are kept.",
        "media_type": "text/markdown",
    }
    write_lines(gates, keys, {"id": "c"})
    with open_knowledge_base(store.dsn, settings=HASHING) as kb:
        first = kb.ingest(f"jsonl:{path}")
        write_lines(keys, {**gates, "title": "Gates"})
        second = kb.ingest(f"jsonl:{path}")
        hits = kb.search("keys kept", k=1)
    assert (first.documents["completed"], first.documents["failed"]) == (2, 1)
    assert "line 3: document: Value error, a document must have a text" in first.failures[0]["reason"]
    counts = second.documents
    assert (counts["completed"], counts["deleted"], counts["same"]) == (1, 1, 1)
    assert titles(hits) == ["Keys"]
    assert hits[0].origin.uri == f"jsonl:{path.as_uri()}#b"
