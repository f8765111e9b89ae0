import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from uuid import UUID

import numpy as np
import pytest

from rag_core.cpu_limit import check_cpu
from rag_core.errors import DocumentError, FencedError, ModelError, StoreError, TransientError
from rag_core.ingestion import stages
from rag_core.ingestion.access import AccessRule, AccessRules
from rag_core.ingestion.sources.pushed import PushedSource
from rag_core.ingestion.stages import Embedding, Preparation
from rag_core.parsing.scan import Finding
from rag_core.protocols import Source
from rag_core.storage.postgres import Postgres
from rag_core.storage.queue import PUSHED_URI, PushedRecord
from rag_core.types import Chunk, Document, Draft, Entry, Failure, Matrix, TermWeights, text_hash

DIMENSION = 4


class ScriptedSource:
    """`bodies` by uri: bytes, or the error that reading raises."""

    def __init__(self, **bodies: bytes | DocumentError) -> None:
        self.uri, self.bodies, self.reads = "", bodies, list[str]()

    def listing(self) -> Iterator[Entry]:
        return (entry(uri) for uri in self.bodies)

    def read(self, entry: Entry) -> bytes:
        self.reads.append(entry.uri)
        body = self.bodies[entry.uri]
        if isinstance(body, DocumentError):
            raise body
        return body


class FlakySource(ScriptedSource):
    """Does not answer the first so many times that it is asked for a document."""

    def __init__(self, **silences: int) -> None:
        super().__init__(**dict.fromkeys(silences, b"body"))
        self.silences = silences

    def read(self, entry: Entry) -> bytes:
        body = super().read(entry)
        if self.reads.count(entry.uri) <= self.silences[entry.uri]:
            raise TransientError("read", "connection reset", True)
        return body


class LineChunker:
    """A chunk a line; `refused` documents raise."""

    def __init__(self, refused: DocumentError | None = None) -> None:
        self.refused = refused

    def split(self, document_id: UUID, document: Document) -> tuple[Chunk, ...]:
        if self.refused:
            raise self.refused
        return chunks(document_id, *document.text.splitlines())


class ScriptedParser:
    def __init__(self, error: DocumentError | None = None) -> None:
        self.error, self.parsed = error, list[str]()

    def __call__(self, _source: Source, uri: str, body: bytes) -> Document:
        self.parsed.append(uri)
        if self.error:
            raise self.error
        return Document(uri=uri, text=body.decode())


class CountingEmbedder:
    """Each text's vector is its length, in each dimension."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error, self.loads, self.batches = error, 0, list[list[str]]()

    def open(self) -> "CountingEmbedder":
        self.loads += 1
        return self

    def embed(self, texts: Sequence[str]) -> Matrix:
        self.batches.append(list(texts))
        if self.error:
            raise self.error
        return np.array([[len(text)] * DIMENSION for text in texts], np.float32)


class CountingWeigher:
    """Each text is one term of weight 1."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error, self.loads, self.batches = error, 0, list[list[str]]()

    def open(self) -> "CountingWeigher":
        self.loads += 1
        return self

    def weigh(self, texts: Sequence[str]) -> list[TermWeights]:
        self.batches.append(list(texts))
        if self.error:
            raise self.error
        return [TermWeights((text,), np.ones(1, np.float32)) for text in texts]


class ScriptedVectors:
    """The store's `known_vectors`, by text."""

    def __init__(self, vectors: Mapping[str, float] | None = None, error: Exception | None = None) -> None:
        self.known = {text_hash(text): np.full(DIMENSION, value, np.float32) for text, value in (vectors or {}).items()}
        self.error, self.lookups = error, list[int]()

    def __call__(self, hashes: Sequence[bytes]) -> Mapping[bytes, Matrix]:
        self.lookups.append(len(hashes))
        if self.error:
            raise self.error
        return {key: self.known[key] for key in hashes if key in self.known}


def entry(uri: str) -> Entry:
    return Entry(uri=uri, size=1, modified_ns=0)


def draft(uri: str, known_sha256: bytes = b"", source: int = 1) -> Draft:
    return Draft(id=UUID(int=sum(uri.encode())), source=source, entry=entry(uri), recipe="r", known_sha256=known_sha256)


def chunks(document_id: UUID, *texts: str, prefix: str = "") -> tuple[Chunk, ...]:
    return tuple(
        Chunk(id=UUID(int=ordinal), document_id=document_id, ordinal=ordinal, text=text, start=0, end=1, prefix=prefix)
        for ordinal, text in enumerate(texts)
    )


def draft_with_chunks(uri: str, *texts: str, prefix: str = "") -> Draft:
    empty = draft(uri)
    return replace(empty, document=Document(uri=uri, text="x"), chunks=chunks(empty.id, *texts, prefix=prefix))


def first_components(ready: Draft) -> list[float]:
    assert ready.vectors is not None
    assert ready.vectors.shape == (len(ready.chunks), DIMENSION)
    return [float(row[0]) for row in ready.vectors]


def preparation(
    source: ScriptedSource, parser: ScriptedParser, chunker: LineChunker | None = None
) -> Callable[[Draft], Draft]:
    """Returns a function that prepares one document."""
    prepare = Preparation({1: source}, parser, chunker or LineChunker())
    return lambda one: next(prepare([one]))


def test_a_document_is_read_parsed_and_split_and_each_part_is_timed() -> None:
    ready = preparation(ScriptedSource(a=b"one\ntwo"), ScriptedParser())(draft("a"))
    assert [chunk.text for chunk in ready.chunks] == ["one", "two"]
    assert ready.sha256 == sha256(b"one\ntwo").digest()
    assert ready.document is not None
    assert set(ready.seconds) == {"read", "parse", "scan", "split"}
    assert ready.pending


def test_bytes_that_are_stored_already_are_not_parsed() -> None:
    parser = ScriptedParser()
    ready = preparation(ScriptedSource(a=b"one"), parser)(draft("a", known_sha256=sha256(b"one").digest()))
    assert ready.same
    assert not ready.pending
    assert parser.parsed == []
    assert ready.document is None


def test_other_bytes_than_the_stored_ones_are_parsed() -> None:
    parser = ScriptedParser()
    ready = preparation(ScriptedSource(a=b"two"), parser)(draft("a", known_sha256=sha256(b"one").digest()))
    assert not ready.same
    assert parser.parsed == ["a"]


def test_an_entry_is_read_from_its_own_source() -> None:
    first, second = ScriptedSource(a=b"of the first"), ScriptedSource(a=b"of the second")
    [ready] = Preparation({1: first, 2: second}, ScriptedParser(), LineChunker())([draft("a", source=2)])
    assert ready.chunks[0].text == "of the second"
    assert first.reads == []


class Inbox(PushedSource):
    """Each document holds its uri."""

    def read(self, entry: Entry) -> bytes:
        return entry.uri.encode()


def inbox(id: str, media_type: str) -> Inbox:
    pushed = PushedRecord(
        id=id,
        uri=id,
        size=4,
        sha256="",
        media_type=media_type,
        title="",
        url="",
        metadata={},
        access=None,
        pushed_at=datetime.now(UTC),
    )
    return Inbox(
        postgres=Postgres(""), tenant="default", job=UUID(int=1), file_mb=1.0, documents={id: pushed}, blocks={}
    )


@pytest.mark.parametrize(
    ("id", "media_type", "name"),
    [("a", "application/pdf", f"{PUSHED_URI}a.pdf"), ("a.gz", "application/json", f"{PUSHED_URI}a.gz.json")],
)
@pytest.mark.parametrize("error", [None, DocumentError("parse", "damaged PDF")])
def test_a_pushed_document_is_scanned_by_the_name_that_it_is_parsed_by(
    id: str, media_type: str, name: str, error: DocumentError | None
) -> None:
    scanned: list[str] = []

    def scan(uri: str, body: bytes, document: Document | None) -> list[Finding]:
        scanned.append(uri)
        return []

    list(Preparation({1: inbox(id, media_type)}, ScriptedParser(error), LineChunker(), scan)([draft(id)]))
    assert scanned == [name]


def test_an_access_rule_reads_the_flags_of_the_scan() -> None:
    rules = AccessRules((AccessRule(pattern=re.compile(".*"), key="flags", groups=("security",)),))

    def scan(_uri: str, body: bytes, _document: Document | None) -> list[Finding]:
        return [Finding("hidden_text", "flag", "hidden text")] if body == b"odd" else []

    source = ScriptedSource(a=b"odd", b=b"plain")
    prepare = Preparation({1: source}, ScriptedParser(), LineChunker(), scan, access=rules)
    assert [ready.access for ready in prepare([draft("a"), draft("b")])] == [("security",), ()]


def test_a_document_that_cannot_be_read_fails_with_its_reason_alone() -> None:
    source = ScriptedSource(a=DocumentError("read", "deleted after it was listed", True))
    ready = preparation(source, ScriptedParser())(draft("a"))
    assert ready.failure == Failure(stage="read", reason="deleted after it was listed", retryable=True)
    assert (ready.document, ready.chunks, ready.vectors) == (None, (), None)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that would have been waited."""
    waited = list[float]()
    monkeypatch.setattr(time, "sleep", waited.append)
    return waited


def prepare_all(source: ScriptedSource) -> list[Draft]:
    prepare = Preparation({1: source}, ScriptedParser(), LineChunker())
    return list(prepare([draft(uri) for uri in source.bodies]))


def test_a_source_that_does_not_answer_is_retried_after_all_others(waits: list[float]) -> None:
    source = FlakySource(a=2, b=0, c=1)
    ready = prepare_all(source)
    assert [draft.entry.uri for draft in ready] == ["b", "c", "a"]
    assert all(draft.pending for draft in ready)
    assert source.reads == ["a", "b", "c", "a", "c", "a"]


def test_the_waits_double_and_one_serves_all_documents(waits: list[float]) -> None:
    prepare_all(FlakySource(a=9, b=9, c=9))
    assert len(waits) == 2
    assert 1 <= waits[0] <= 2 <= waits[1] <= 3


def test_a_ready_document_does_not_wait_for_others(waits: list[float]) -> None:
    prepare = Preparation({1: FlakySource(a=1, b=0)}, ScriptedParser(), LineChunker())
    first = next(prepare([draft("a"), draft("b")]))
    assert (first.entry.uri, waits) == ("b", [])


def test_a_document_that_cannot_be_read_three_times_is_a_dead_letter(waits: list[float]) -> None:
    source = FlakySource(a=3, b=0)
    ready = {draft.entry.uri: draft for draft in prepare_all(source)}
    assert ready["a"].failure == Failure(stage="read", reason="connection reset (3 attempts)", retryable=True)
    assert ready["b"].pending
    assert source.reads.count("a") == 3


@pytest.mark.parametrize(
    "error",
    [
        DocumentError("read", "deleted after it was listed", True),
        DocumentError("read", "permission denied"),
        DocumentError("read", "too large: 2.0 MB or more, limit 1 MB"),
    ],
    ids=lambda error: error.reason,
)
def test_a_permanent_failure_is_not_retried(error: DocumentError, waits: list[float]) -> None:
    source = ScriptedSource(a=error)
    [failed] = prepare_all(source)
    assert failed.failure == Failure(stage="read", reason=error.reason, retryable=error.retryable)
    assert (source.reads, waits) == (["a"], [])


def test_a_document_that_cannot_be_parsed_keeps_its_hash_so_that_it_is_not_tried_again() -> None:
    parser = ScriptedParser(DocumentError("parse", "page 3 has no text layer"))
    ready = preparation(ScriptedSource(a=b"body"), parser)(draft("a"))
    assert ready.failure == Failure(stage="parse", reason="page 3 has no text layer")
    assert ready.sha256 == sha256(b"body").digest()
    assert set(ready.seconds) == {"read", "parse"}


def test_a_document_without_text_is_skipped() -> None:
    parser = ScriptedParser(DocumentError("parse", "empty", status="skipped"))
    ready = preparation(ScriptedSource(a=b""), parser)(draft("a"))
    assert ready.failure == Failure(stage="parse", reason="empty", status="skipped")


def test_a_chunker_that_refuses_fails_the_document() -> None:
    chunker = LineChunker(DocumentError("split", "too many"))
    ready = preparation(ScriptedSource(a=b"body"), ScriptedParser(), chunker)(draft("a"))
    assert ready.failure == Failure(stage="split", reason="too many")


def test_a_document_without_a_chunk_has_failed() -> None:
    ready = preparation(ScriptedSource(a=b""), ScriptedParser())(draft("a"))
    assert ready.failure == Failure(stage="split", reason="no text")
    assert ready.document is None


def test_each_distinct_text_is_encoded_once_for_all_documents() -> None:
    embedder = CountingEmbedder()
    ready = Embedding(embedder.open, ScriptedVectors())(
        [draft_with_chunks("a", "same", "of a"), draft_with_chunks("b", "same", "of bb", "same")]
    )
    assert embedder.batches == [["same", "of a", "of bb"]]
    assert [first_components(draft) for draft in ready] == [[4, 4], [4, 5, 4]]
    assert [draft.embedded for draft in ready] == [2, 1]


def test_stored_vectors_are_looked_up_between_encodings_so_that_an_ended_job_stops_between_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stages, "MAX_TEXTS", 2)
    embedder, queries = CountingEmbedder(), list[int]()

    def find_vectors(hashes: Sequence[bytes]) -> dict[bytes, Matrix]:
        queries.append(len(hashes))
        if len(queries) == 3:
            raise FencedError("the job was cancelled")
        return {}

    drafts = [draft_with_chunks("a", "1", "22", "333"), draft_with_chunks("b", "4444", "55555")]
    with pytest.raises(FencedError, match="the job was cancelled"):
        Embedding(embedder.open, find_vectors)(drafts)
    assert (queries, embedder.batches) == ([2, 2, 1], [["1", "22"], ["333", "4444"]])


def test_a_stage_that_many_documents_share_has_one_start_and_busy_seconds_of_each() -> None:
    embedder = CountingEmbedder()
    first, second = Embedding(embedder.open, ScriptedVectors())(
        [draft_with_chunks("a", "x"), draft_with_chunks("b", "yy")]
    )
    assert first.times["embed"][0] == second.times["embed"][0] <= first.times["embed"][1]


def test_twins_cost_one_encoding_and_each_gets_all_its_vectors() -> None:
    embedder = CountingEmbedder()
    ready = Embedding(embedder.open, ScriptedVectors())(
        [draft_with_chunks("a", "x", "yy"), draft_with_chunks("twin", "x", "yy")]
    )
    assert [first_components(draft) for draft in ready] == [[1, 2], [1, 2]]
    assert [draft.embedded for draft in ready] == [2, 0]


def test_the_prefix_is_part_of_what_is_encoded() -> None:
    embedder = CountingEmbedder()
    Embedding(embedder.open, ScriptedVectors())(
        [draft_with_chunks("a", "text", prefix="Title"), draft_with_chunks("b", "text")]
    )
    assert embedder.batches == [["Title\ntext", "text"]]


def test_a_stored_text_is_never_encoded_again() -> None:
    embedder, vectors = CountingEmbedder(), ScriptedVectors({"stored": 0.5})
    (ready,) = Embedding(embedder.open, vectors)([draft_with_chunks("a", "stored", "new", "stored")])
    assert embedder.batches == [["new"]]
    assert first_components(ready) == [0.5, 3, 0.5]
    assert ready.embedded == 1
    assert vectors.lookups == [2]


def test_a_text_of_earlier_documents_is_not_encoded_again_even_if_they_are_not_stored_yet() -> None:
    embedder, vectors = CountingEmbedder(), ScriptedVectors()
    embed = Embedding(embedder.open, vectors)
    embed([draft_with_chunks("a", "same", "of a")])
    (ready,) = embed([draft_with_chunks("b", "same", "of bb")])
    assert embedder.batches == [["same", "of a"], ["of bb"]]
    assert (first_components(ready), ready.embedded) == ([4, 5], 1)
    assert vectors.lookups == [2, 1]


def test_the_model_is_not_loaded_when_every_text_is_stored() -> None:
    embedder = CountingEmbedder()
    embed = Embedding(embedder.open, ScriptedVectors({"one": 1, "two": 2}))
    (ready,) = embed([draft_with_chunks("a", "one", "two")])
    assert first_components(ready) == [1, 2]
    assert (ready.embedded, embedder.loads, embed.start_seconds) == (0, 0, 0.0)


def test_the_model_is_loaded_once_and_its_loading_time_is_reported() -> None:
    embedder = CountingEmbedder()
    embed = Embedding(embedder.open, ScriptedVectors())
    embed([draft_with_chunks("a", "one")])
    embed([draft_with_chunks("b", "two")])
    assert embedder.loads == 1
    assert embed.start_seconds > 0


def test_every_chunk_is_weighed_even_if_its_vector_is_stored() -> None:
    embedder, weigher = CountingEmbedder(), CountingWeigher()
    embed = Embedding(embedder.open, ScriptedVectors({"stored": 0.5}), weigher.open)
    first, second = embed(
        [draft_with_chunks("a", "stored", "new", "stored"), draft_with_chunks("b", "new", prefix="Title")]
    )
    assert weigher.batches == [["stored", "new", "Title\nnew"]]
    assert [weights.terms for weights in first.weights] == [("stored",), ("new",), ("stored",)]
    assert [weights.terms for weights in second.weights] == [("Title\nnew",)]
    assert first.seconds["embed"] > 0


def test_both_models_are_loaded_before_they_are_needed() -> None:
    embedder, weigher = CountingEmbedder(), CountingWeigher()
    embed = Embedding(embedder.open, ScriptedVectors(), weigher.open)
    embed.load()
    assert (embedder.loads, weigher.loads) == (1, 1)


def test_a_weigher_that_fails_fails_what_was_pending_for_the_moment() -> None:
    weigher = CountingWeigher(ModelError("out of memory"))
    (ready,) = Embedding(CountingEmbedder().open, ScriptedVectors(), weigher.open)([draft_with_chunks("a", "x")])
    assert ready.failure == Failure(stage="embed", reason="out of memory", retryable=True)
    assert (ready.vectors, ready.weights) == (None, ())


def test_failed_and_unchanged_documents_pass_through_in_their_place() -> None:
    embedder, vectors = CountingEmbedder(), ScriptedVectors()
    failed = draft("failed").with_failure(Failure(stage="parse", reason="broken"))
    same = replace(draft("same"), same=True)
    ready = Embedding(embedder.open, vectors)([failed, draft_with_chunks("a", "x"), same])
    assert [ready[0], ready[2]] == [failed, same]
    assert first_components(ready[1]) == [1]
    assert Embedding(embedder.open, vectors)([failed, same]) == [failed, same]
    assert vectors.lookups == [1]


def test_an_embedder_that_fails_fails_only_what_was_pending_and_for_the_moment_only() -> None:
    parse_failure = Failure(stage="parse", reason="broken")
    drafts = [
        draft("failed").with_failure(parse_failure),
        draft_with_chunks("a", "x"),
        replace(draft("same"), same=True),
    ]
    ready = Embedding(CountingEmbedder(ModelError("out of memory")).open, ScriptedVectors())(drafts)
    assert ready[0].failure == parse_failure
    assert ready[1].failure == Failure(stage="embed", reason="out of memory", retryable=True)
    assert ready[1].chunks == ()
    assert ready[2].failure is None


def test_documents_are_to_be_tried_again_when_the_store_is_lost_while_it_is_asked() -> None:
    (ready,) = Embedding(CountingEmbedder().open, ScriptedVectors(error=StoreError("lost")))(
        [draft_with_chunks("a", "x")]
    )
    assert ready.failure == Failure(stage="embed", reason="lost", retryable=True)


def test_a_model_that_cannot_be_loaded_is_named_in_every_documents_failure() -> None:
    def missing() -> CountingEmbedder:
        raise OSError("no such file: model.safetensors")

    (ready,) = Embedding(missing, ScriptedVectors())([draft_with_chunks("a", "x")])
    assert ready.failure is not None
    assert ready.failure.reason == "the embedding model cannot be loaded: no such file: model.safetensors"
    assert ready.failure.retryable


def test_loading_ahead_raises_what_is_wrong_with_the_model() -> None:
    def fail_to_load() -> CountingEmbedder:
        raise ValueError("not a safetensors file")

    with pytest.raises(ModelError, match="the embedding model cannot be loaded: not a safetensors file"):
        Embedding(fail_to_load, ScriptedVectors()).load()


def test_busy_seconds_are_shared_out_to_those_whose_texts_were_encoded() -> None:
    ready = Embedding(CountingEmbedder().open, ScriptedVectors({"known": 1}))(
        [draft_with_chunks("a", "x", "yy"), draft_with_chunks("b", "known")]
    )
    assert ready[0].seconds["embed"] > 0
    assert ready[1].seconds["embed"] == 0


class EndlessChunker:
    def split(self, document_id: UUID, document: Document) -> tuple[Chunk, ...]:  # noqa: ARG002
        while True:
            check_cpu()


def test_a_document_that_takes_too_long_to_split_fails() -> None:
    prepare = Preparation({1: ScriptedSource(a=b"text")}, ScriptedParser(), EndlessChunker(), seconds=0.01)
    [failed] = prepare([draft("a")])
    assert failed.failure == Failure(stage="split", reason="took longer than 0.01 s of CPU time", retryable=True)
