"""The rules of single nodes, without a store."""

import asyncio
import json
import logging
from collections.abc import Iterator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import stamina
from fakes.openai_endpoint import CUT, run_endpoint, stream_response, whole_response
from pydantic import ValidationError
from trees import HASHING

from rag_core.answering.judging.guard import BLOCKED_ANSWER
from rag_core.answering.pipeline import ABSTENTION
from rag_core.contract import nodes
from rag_core.contract.nodes import InMemoryStore, LLMConfig, NodeConfig, RetryConfig, Turn, document_loader
from rag_core.contract.nodes.documents import document_from_dict, documents_from_chunks
from rag_core.contract.nodes.memory_store import drop_expired_turns
from rag_core.contract.nodes.running import Inputs, Outputs, as_node
from rag_core.contract.vector_store.memory import MemoryVectorStore
from rag_core.conversation.in_memory import MAX_SESSIONS
from rag_core.errors import TransientError
from rag_core.ingestion.sources.files import FilesSource
from rag_core.settings import load_settings
from rag_core.types import Entry
from rag_core.wiring.ingestion import open_files_source

NOW = datetime(2026, 11, 26, tzinfo=UTC)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for setting in (*HASHING, "parsing.sandbox=false"):
        path, _, value = setting.partition("=")
        monkeypatch.setenv("RAG_" + path.upper().replace(".", "__"), value)
    for name in ("http_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with stamina.set_testing(True, attempts=9, cap=True):
        yield


def build(node: str, *parts: Any, **arguments: Any) -> Any:
    config = getattr(nodes, f"{node}Config")(name="n", **arguments)
    return getattr(nodes, f"{node}Node")(config, *parts)


def run(node: Any, **inputs: Any) -> dict[str, Any]:
    outputs: dict[str, Any] = asyncio.run(node.run(inputs))
    return outputs


class Failing:
    """A node that fails with these errors in turn, and then returns its number of attempts."""

    def __init__(self, *errors: Exception, **config: Any) -> None:
        self.config = NodeConfig(name="failing", node_type="test", **config)
        self.errors, self.attempts = list(errors), 0

    @as_node(lambda _: {"attempts": 0})
    async def run(self, inputs: Inputs) -> Outputs:
        self.attempts += 1
        if self.errors:
            raise self.errors.pop(0)
        return {"attempts": self.attempts, **inputs}


def test_a_temporary_failure_is_retried_as_often_as_configured() -> None:
    assert run(Failing(ConnectionError(), TimeoutError())) == {"attempts": 3}
    node = Failing(*[ConnectionError("gone")] * 9, retry_config=RetryConfig(max_retries=1))
    with pytest.raises(RuntimeError, match="the node failing failed: no answer after 2 attempts: gone"):
        run(node)
    assert node.attempts == 2


def test_another_failure_is_not_retried() -> None:
    node = Failing(ValueError("wrong"))
    with pytest.raises(ValueError, match="wrong"):
        run(node)
    assert node.attempts == 1


def test_an_invalid_configuration_names_field_rule_and_value() -> None:
    with pytest.raises(ValidationError, match=r"(?s)top_k\n.*greater than or equal to 1") as refused:
        build("VectorSearch", vector_store="x", top_k=0)
    assert refused.value.errors()[0]["input"] == 0  # not in the message, because other values are secrets
    with pytest.raises(ValidationError, match="chunk_overlap must be in"):
        build("ChunkingStrategy", chunk_size=20, chunk_overlap=20)
    with pytest.raises(ValidationError, match=r"format_handlers must be suffixes of known formats, .* got pdff"):
        build("DocumentLoader", source_type="file", source_config={}, format_handlers=["pdf", "pdff"])


def turn(minutes: int, text: str = "hello") -> Turn:
    return Turn(session_id="s", role="user", content=text, timestamp=NOW - timedelta(minutes=minutes))


def test_a_pause_that_is_too_long_ends_a_session() -> None:
    turns = [turn(200), turn(100), turn(50), turn(5)]
    assert drop_expired_turns(turns, 3600, NOW) == turns[1:]
    assert drop_expired_turns(turns, 60, NOW) == []


def test_a_memory_store_keeps_turns_and_participants_and_forgets_the_oldest_session() -> None:
    async def work() -> InMemoryStore:
        store = InMemoryStore()
        for number in range(MAX_SESSIONS + 1):
            await store.save_turn(str(number), turn(0, str(number)))
        await store.save_turn("1", Turn(session_id="1", role="assistant", content="hi"))
        assert [message.content for message in await store.get_history("1", 5)] == ["1", "hi"]
        assert await store.get_history("0", 5) == []
        assert (await store.get_session("1")).participants == ("user", "assistant")
        return store

    assert len(asyncio.run(asyncio.run(work()).list_sessions())) == MAX_SESSIONS


def test_a_session_that_has_expired_is_closed_by_the_next_run() -> None:
    manage = build("SessionManagement", memory_store="expiry", session_ttl=60)
    assert run(manage, session_id="old")["active_sessions"] == 1
    store = nodes.session_management.open_memory_store(load_settings(), "expiry")  # type: ignore[attr-defined]
    asyncio.run(store.save_turn("old", Turn(session_id="old", role="user", content="hello", timestamp=NOW)))
    opened = run(manage, session_id="new")
    assert (opened["session"]["id"], opened["closed"], opened["active_sessions"]) == ("new", ["old"], 1)
    assert run(manage, session_id="new", action="close")["active_sessions"] == 0
    with pytest.raises(ValueError, match="action must be open or close, got 'list'"):
        run(manage, session_id="new", action="list")


def test_chunks_keep_their_places_in_the_text_that_is_rebuilt_from_them() -> None:
    chunks = [
        {"document_id": "d", "content": "and doors.", "start_index": 20, "metadata": {"page": 2, "year": 2026}},
        {"document_id": "d", "content": "Keys and", "start_index": 0, "metadata": {"page": 1, "year": 2026}},
        {"document_id": "d", "content": "and gates", "start_index": 5, "metadata": {"page": 1, "year": 2026}},
    ]
    (document,) = documents_from_chunks(chunks)
    assert document.text == "Keys and gates" + "\n" * 6 + "and doors."
    assert [document.text[span.start : span.end] for span in document.given] == ["Keys and", "and gates", "and doors."]
    assert (document.metadata, document.given[2].metadata) == ({"source": "d", "year": 2026}, {"page": 2})


def test_chunks_of_characters_have_at_most_their_size_and_carry_their_page() -> None:
    document = {"id": "d", "content": "One sentence is here. " * 20, "metadata": {"source": "d"}, "pages": [0, 220]}
    chunks = run(build("ChunkingStrategy", unit="chars", chunk_size=100, chunk_overlap=0), documents=[document])[
        "chunks"
    ]
    assert max(len(chunk["content"]) for chunk in chunks) <= 100
    assert {chunk["metadata"]["page"] for chunk in chunks} == {1, 2}
    for chunk in chunks:
        assert document["content"][chunk["start_index"] : chunk["end_index"]] == chunk["content"]


def test_chunks_above_the_window_of_the_embedding_model_are_refused() -> None:
    with pytest.raises(RuntimeError, match="window"):
        run(build("ChunkingStrategy", chunk_size=600), documents=[])


def test_metadata_is_completed_and_own_values_stay() -> None:
    document = {
        "id": "d",
        "content": "# Keys\n\nThey are rotated.",
        "metadata": {"keywords": "locks, doors", "year": 2026},
    }
    (completed,) = run(build("MetadataExtractor"), documents=[document])["documents"]
    metadata = completed["metadata"]
    assert (metadata["title"], metadata["tags"], metadata["year"]) == ("Keys", ["locks", "doors"], 2026)
    assert metadata["source"] == "d"


def test_vectors_go_to_the_configured_store_and_are_found_in_it() -> None:
    store = MemoryVectorStore(64)
    chunks = [
        {"id": "c1", "document_id": "d", "content": "Keys are rotated.", "metadata": {"source": "d", "page": None}},
        {"id": "c2", "document_id": "d", "content": "Gates are opened.", "metadata": {"source": "d", "year": 2026}},
    ]
    assert run(build("EmbeddingIndexer", store, vector_store="any"), chunks=chunks) == {"indexed": 2, "failures": []}
    search = build("VectorSearch", store, vector_store="any", top_k=1)
    (result,) = run(search, query="are the keys rotated?")["results"]
    assert (result["id"], result["content"]) == ("c1", "Keys are rotated.")
    assert result["metadata"] == {"source": "d", "page": None}
    (result,) = run(search, query="are the keys rotated?", filters={"year": [2025, 2026]})["results"]
    assert result["id"] == "c2"
    search = build("VectorSearch", store, vector_store="any", score_threshold=0.99, include_metadata=False)
    assert run(search, query="zebras")["results"] == []
    assert run(search, query="Keys are rotated.")["results"][0]["metadata"] == {}


def test_a_page_of_the_web_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "keys.html").write_text("<h1>Keys</h1><p>They are rotated.</p>")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(tmp_path)))
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/keys.html"
        loader = build("DocumentLoader", source_type="web", source_config={"url": url})
        (document,) = run(loader)["documents"]
    finally:
        server.shutdown()
        server.server_close()
    assert (document["id"], document["metadata"]["format"]) == (url, "html")


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ({"type": "file"}, "a source must have a type"),
        ({"type": "ftp", "url": "ftp://x"}, "a source must have a type"),
        ({"type": "web", "url": "keys.html"}, "a web source must have an http or https address, got 'keys.html'"),
        ({"type": "file", "path": "/nowhere/at/all"}, "give an existing file or folder"),
    ],
)
def test_a_source_that_cannot_be_used_is_a_value_error(source: dict[str, str], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        run(build("DocumentLoader", source_type="file", source_config={}), sources=[source])


class Flaky:
    """A source whose first reading of a document fails."""

    def __init__(self, source: FilesSource) -> None:
        self.source, self.failures = source, 1

    def listing(self) -> Iterator[Entry]:
        return self.source.listing()

    def read(self, entry: Entry) -> bytes:
        if self.failures:
            self.failures -= 1
            raise TransientError("read", "busy", True)
        return self.source.read(entry)


@pytest.mark.parametrize(("max_retries", "loaded"), [(1, 1), (0, 0)])
def test_a_document_that_is_temporarily_unreadable_is_read_again(
    max_retries: int, loaded: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "keys.txt").write_text("Keys are rotated.")
    monkeypatch.setattr(document_loader, "open_files_source", lambda *arguments: Flaky(open_files_source(*arguments)))
    retry = RetryConfig(max_retries=max_retries)
    loader = build("DocumentLoader", source_type="file", source_config={"path": str(tmp_path)}, retry_config=retry)
    assert len(run(loader)["documents"]) == loaded


def test_an_api_delivers_json(tmp_path: Path) -> None:
    loader = build("DocumentLoader", source_type="api", source_config={})
    assert "json" in loader._read_source({"url": "https://example.org/items"})[1]
    assert "json" not in loader._read_source({"type": "web", "url": "https://example.org/items"})[1]


def test_a_chunk_keeps_the_vector_that_it_brings() -> None:
    (document,) = documents_from_chunks([{"document_id": "d", "content": "Keys.", "embedding": [0.6, 0.8]}])
    assert document.given[0].vector == (0.6, 0.8)


def test_a_document_keeps_the_chunks_or_the_vector_that_it_brings() -> None:
    chunks = [{"start_index": 0, "end_index": 5}, {"start_index": 6, "end_index": 12, "embedding": [1.0, 0.0]}]
    document = document_from_dict({"id": "d", "content": "Keys. Gates.", "chunks": chunks})
    assert [(span.start, span.end, span.vector) for span in document.given] == [(0, 5, ()), (6, 12, (1.0, 0.0))]
    (chunk,) = document_from_dict({"id": "d", "content": "Keys.", "embedding": [0.6, 0.8]}).given
    assert (chunk.start, chunk.end, chunk.vector) == (0, 5, (0.6, 0.8))


def result(id: str, content: str, score: float = 1.0, **metadata: Any) -> dict[str, Any]:
    return {"id": id, "content": content, "score": score, "metadata": metadata}


def test_overlapping_results_become_one_item_of_the_context() -> None:
    place = {"document_id": "d", "start_index": 0}
    results = [
        result("b", "two three", 0.9, **{**place, "start_index": 4}),
        result("x", "Something else.", 0.5),
        result("a", "one two", 0.3, **place),
    ]
    context = run(build("ContextCompressor"), results=results)["context"]
    assert [(item["id"], item["content"]) for item in context] == [("b", "one two three"), ("x", "Something else.")]


def test_weighted_items_have_notes_that_a_language_model_reads() -> None:
    results = [result("a", "Keys are rotated.", 0.9), result("b", "Gates are opened.", 0.1)]
    context = run(build("ContextCompressor", strategy="weighted"), results=results)["context"]
    assert [item["metadata"]["note"] for item in context] == ["[HIGHLY RELEVANT]", "[POTENTIALLY RELEVANT]"]
    with run_endpoint(stream_response("Yes [1].")) as endpoint:
        run(build_generator("GroundedGenerator", endpoint.url), query="keys?", context=context)
    assert "[HIGHLY RELEVANT]\nKeys are rotated." in endpoint.prompts[0][-1]["content"]


def test_without_a_reranker_the_results_keep_their_order_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    results = [result("a", "Keys."), result("b", "Gates.")]
    with caplog.at_level(logging.WARNING, "rag_core.contract.nodes"):
        assert run(build("ReRanker", top_k=1), query="gates", results=results)["results"] == results[:1]
    assert "the profile has no reranker" in caplog.text


def test_a_language_model_reranks_and_judges() -> None:
    results = [result("a", "Keys are rotated."), result("b", "Gates are opened.")]
    with run_endpoint(whole_response("1"), whole_response("1")) as endpoint:
        reranker = build("ReRanker", llm_config=LLMConfig(model="llama", base_url=endpoint.url))
        scores = [item["score"] for item in run(reranker, query="gates", results=results)["results"]]
    assert scores == [1 / 9, 1 / 9]
    with run_endpoint(whole_response('{"supported": false, "reason": "not said"}')) as endpoint:
        judge = build("LLMJudge", llm_config=LLMConfig(model="llama", base_url=endpoint.url))
        verdict = run(judge, response="Keys are painted [1].", context=results)["verdict"]
    assert (verdict["grade"], verdict["method"]) == ("unsupported", "llm")
    assert verdict["claims"] == [
        {"text": "Keys are painted", "grade": "unsupported", "score": 0.0, "reason": "not said"}
    ]


def test_a_language_model_grades_the_quality_by_the_rubric() -> None:
    names = ("faithfulness", "relevance", "completeness")
    grades = {name: {"reason": "so", "grade": grade} for name, grade in zip(names, (5, 3, 1), strict=True)}
    with run_endpoint(whole_response(json.dumps(grades))) as endpoint:
        node = build("AnswerQualityEvaluation", llm_config=LLMConfig(model="llama", base_url=endpoint.url))
        inputs = {"query": "keys?", "response": "Keys are rotated [1].", "context": [result("a", "Keys are rotated.")]}
        quality = run(node, **inputs, references=["Every week."])["answer_quality"]
    assert quality == {"faithfulness": 1.0, "relevance": 0.5, "completeness": 0.0}
    assert "Every week." in endpoint.prompts[0][-1]["content"]


def build_generator(node: str, url: str = "", **arguments: Any) -> Any:
    model = LLMConfig(model="llama", base_url=url) if url else LLMConfig()
    return build(node, llm_config=model, system_prompt="Answer.", **arguments)


CONTEXT = [result("chunk_1", "Keys are rotated every week."), result("chunk_2", "Gates open at spring tide.")]


async def read_stream(node: Any, **inputs: Any) -> list[dict[str, Any]]:
    async with aclosing((await node.run(inputs))["stream"]) as stream:
        return [event async for event in stream]


def test_a_stream_yields_text_and_citations_in_turn() -> None:
    with run_endpoint(stream_response("Every ", "week [1].")) as endpoint:
        node = build_generator("StreamingGenerator", endpoint.url)
        events = asyncio.run(read_stream(node, query="how often?", context=CONTEXT))
    assert "".join(event.get("text", "") for event in events) == "Every week [1]."
    (citation,) = [event["citation"] for event in events if "citation" in event]
    assert citation == {"id": "1", "source_id": "chunk_1", "snippet": "Keys are rotated every week."}


def test_a_stream_without_an_answer_is_the_abstention() -> None:
    node = build_generator("StreamingGenerator")
    assert asyncio.run(read_stream(node, query="zebras in Lisbon?", context=CONTEXT)) == [{"text": ABSTENTION}]


def test_a_model_that_breaks_off_is_a_runtime_error() -> None:
    response = stream_response("Every ")
    with run_endpoint(type(response)(steps=[*response.steps[:1], CUT])) as endpoint:
        node = build_generator("StreamingGenerator", endpoint.url)
        with pytest.raises(RuntimeError, match="the node n failed"):
            asyncio.run(read_stream(node, query="how often?", context=CONTEXT))


@pytest.mark.parametrize("node", ["GroundedGenerator", "StreamingGenerator"])
@pytest.mark.parametrize(
    ("inputs", "missing"),
    [
        ({"context": [{"id": "chunk_1"}]}, "a result must have id, content; missing: content"),
        ({"context": CONTEXT, "conversation_history": [{"role": "user"}]}, "a turn must have .*; missing: content"),
    ],
)
def test_a_generator_names_the_key_that_an_input_lacks(node: str, inputs: Inputs, missing: str) -> None:
    with pytest.raises(ValueError, match=missing):
        run(build_generator(node), query="keys?", **inputs)


@pytest.mark.parametrize("node", ["GroundedGenerator", "StreamingGenerator"])
def test_without_a_context_no_model_is_asked(node: str) -> None:
    generator = build_generator(node, "http://127.0.0.1:1/v1")
    if node == "GroundedGenerator":
        assert run(generator, query="keys?", context=[])["response"] == ABSTENTION
    else:
        assert asyncio.run(read_stream(generator, query="keys?", context=[])) == [{"text": ABSTENTION}]


def test_a_footnote_is_marked_as_one_and_listed() -> None:
    node = build_generator("GroundedGenerator", citation_style="footnote")
    response = run(node, query="How often are keys rotated?", context=CONTEXT)["response"]
    assert response.startswith("Keys are rotated every week. [^1]")
    assert "\n[^1]: " in response


def test_a_response_that_its_context_does_not_support_takes_the_fallback() -> None:
    guard = build("HallucinationGuard")
    blocked = run(guard, response="Keys are painted by 40 zebras [1].", context=CONTEXT)
    assert (blocked["response"], blocked["route"]) == (BLOCKED_ANSWER, "fallback")
    assert blocked["verdict"]["grade"] == "unsupported"
    passed = run(guard, response="Keys are rotated every week [1].", context=CONTEXT)
    assert (passed["response"], passed["route"]) == ("Keys are rotated every week [1].", "answer")


def test_after_a_change_of_the_subject_there_is_no_history_to_use() -> None:
    history = [{"role": "user", "content": "rotate signing keys"}, {"role": "assistant", "content": "Every month."}]
    node = build("TopicShiftDetector", sensitivity="high")
    shifted = run(node, query="sluice gates opened at spring tide?", conversation_history=history)
    assert (shifted["is_shift"], shifted["conversation_history"]) == (True, [])
    followed = run(node, query="who may rotate them?", conversation_history=history)
    assert (followed["is_shift"], followed["conversation_history"]) == (False, history)
    message = {"role": "user", "content": "rotate keys"}
    assert run(node, query="rotate keys", conversation_history=[message])["drift"] is None


def test_a_citation_of_an_unknown_source_is_a_value_error() -> None:
    citations = [{"id": "1", "source_id": "chunk_9", "snippet": ""}]
    with pytest.raises(ValueError, match="the source_id of an item of the context, got chunk_9"):
        run(build("CitationsFormatter"), citations=citations, context=CONTEXT)


def test_references_are_found_by_the_markers_of_a_response() -> None:
    context = [result("c", "Keys are rotated.", url="https://example.org/keys", title="Keys", source="s3://b/keys.md")]
    (citation,) = run(build("CitationsFormatter"), response="So it is [1].", context=context)["citations"]
    assert citation == {
        "id": "1",
        "source_id": "c",
        "url": "https://example.org/keys",
        "title": "Keys",
        "snippet": "Keys are rotated.",
    }


def test_weights_count_for_a_weighted_sum_only() -> None:
    results = {"vector": [{"id": "a", "score": 1.0}, {"id": "b", "score": 0.0}], "bm25": [{"id": "b", "score": 9.0}]}
    fused = run(
        build("HybridFusion", strategy="weighted_sum", weights={"vector": 0.9, "bm25": 0.1}), retrieval_results=results
    )["fused_results"]
    assert [(item["id"], round(item["score"], 3)) for item in fused] == [("a", 0.9), ("b", 0.0)]


def test_a_query_without_results_counts_as_zero() -> None:
    queries = [
        {"query_id": "q1", "query": "", "relevant": {"d1": 1}},
        {"query_id": "q2", "query": "", "relevant": {"x": 2}},
    ]
    ranked = [result("c1", "", source="d0"), result("c2", "", source="d1"), result("c3", "", source="d1")]
    report = run(build("RetrievalEvaluation"), queries=queries, results={"q1": ranked})
    assert [evaluation["metrics"]["mrr"] for evaluation in report["evaluations"]] == [0.5, 0.0]
    assert report["metrics"]["recall_at_k"] == {"5": 0.5, "10": 0.5}
    assert report["metrics"]["mrr"] == 0.25


EARLIER = [
    {"role": "user", "content": "Who runs the harbour board?"},
    {"role": "assistant", "content": "It is run by Pell Anstrow."},
]


def test_a_query_is_rewritten_and_its_references_are_resolved_by_rules() -> None:
    inputs = {"query": "And when was she born?", "conversation_history": EARLIER}
    assert run(build("QueryRewrite"), **inputs)["rewritten_query"] == "And when was she born? (Pell Anstrow)"
    assert run(build("CoreferenceResolver"), **inputs)["references"] == [{"text": "she", "refers_to": "Pell Anstrow"}]


def test_a_language_model_rewrites_a_query_if_it_is_configured() -> None:
    reply = {"standalone": "When was Pell Anstrow born?", "intent": "search"}
    inputs = {"query": "And when was she born?", "conversation_history": EARLIER}
    with run_endpoint(whole_response(json.dumps(reply))) as endpoint:
        node = build("QueryRewrite", llm_config=LLMConfig(model="llama", base_url=endpoint.url))
        outputs = run(node, **inputs)
    assert outputs["rewritten_query"] == "When was Pell Anstrow born?"
    assert [variant["name"] for variant in outputs["variants"]] == ["question", "rewrite"]


@pytest.mark.parametrize(
    ("query", "intent", "route"),
    [("Thanks!", "conversational", "reply"), ("Where do I report leaks?", "routing", "retrieve")],
)
def test_the_intent_of_a_query_decides_its_route(query: str, intent: str, route: str) -> None:
    outputs = run(build("QueryClassifier"), query=query, conversation_history=[])
    assert outputs == {"intent": intent, "route": route}


def test_a_query_that_a_model_finds_ambiguous_is_to_be_clarified() -> None:
    reply = {"standalone": "When?", "intent": "clarification"}
    with run_endpoint(whole_response(json.dumps(reply))) as endpoint:
        node = build("QueryClassifier", llm_config=LLMConfig(model="llama", base_url=endpoint.url))
        outputs = run(node, query="When?", conversation_history=EARLIER)
    assert outputs == {"intent": "clarification", "route": "clarify"}
