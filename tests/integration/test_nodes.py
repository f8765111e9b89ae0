"""The nodes of the node interface, on the embedded store with the hashing embedder."""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import stamina
from fakes.openai_endpoint import run_endpoint, stream_response
from trees import HASHING, write

from rag_core import open_knowledge_base
from rag_core.contract.nodes import (
    ConversationStateConfig,
    ConversationStateNode,
    DocumentLoaderConfig,
    DocumentLoaderNode,
    GroundedGeneratorConfig,
    GroundedGeneratorNode,
    HybridFusionConfig,
    HybridFusionNode,
    LLMConfig,
    VectorSearchConfig,
    VectorSearchNode,
)
from rag_core.hyperkb import SparseRetriever
from rag_core.storage.postgres import Postgres

pytestmark = pytest.mark.postgres

QUESTION = "how often are the keys rotated?"
TREE = {
    "keys.txt": "The keys are rotated every ninety days. The operator rotates them.\n",
    "gates.html": "<h1>Gates</h1><p>The sluice gates are opened at spring tide.</p>",
    "data.csv": "name,age\nada,36\n",
}


@pytest.fixture(autouse=True)
def environment(store: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAG_STORE__URL", store.dsn)
    for setting in (*HASHING, "parsing.sandbox=false"):
        path, _, value = setting.partition("=")
        monkeypatch.setenv("RAG_" + path.upper().replace(".", "__"), value)


@pytest.fixture(autouse=True)
def no_waiting() -> Iterator[None]:
    with stamina.set_testing(True, attempts=1):
        yield


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    return write(tmp_path / "docs", TREE)


def run(node: Any, **inputs: Any) -> dict[str, Any]:
    outputs: dict[str, Any] = asyncio.run(node.run(inputs))
    return outputs


def test_files_of_the_handled_formats_are_loaded(docs: Path, caplog: pytest.LogCaptureFixture) -> None:
    node = DocumentLoaderNode(DocumentLoaderConfig(name="load", source_type="file", source_config={}))
    with caplog.at_level(logging.WARNING, "rag_core.contract.nodes"):
        documents = run(node, sources=[{"type": "file", "path": str(docs)}])["documents"]
    assert [document["metadata"]["format"] for document in documents] == ["html", "text"]
    assert documents[1]["content"] == TREE["keys.txt"]
    assert documents[1]["metadata"]["source"] == documents[1]["id"] == (docs / "keys.txt").as_uri()
    assert "format_handlers lack its format csv" in caplog.text


def test_a_collection_is_searched_by_its_name(docs: Path) -> None:
    with open_knowledge_base() as knowledge:
        knowledge.ingest(docs, collection="shop")
    node = VectorSearchNode(VectorSearchConfig(name="search", vector_store="shop", top_k=2))
    results = run(node, query=QUESTION)["results"]
    assert results[0]["content"].startswith("The keys are rotated")
    assert results[0]["metadata"]["source"] == (docs / "keys.txt").as_uri()
    (filtered,) = run(node, query=QUESTION, filters={"format": "html"})["results"]
    assert filtered["metadata"]["title"] == "Gates"


CONTEXT = [
    {"id": "chunk_1", "content": "The sluice gates are opened at spring tide.", "metadata": {}},
    {"id": "chunk_2", "content": "The keys are rotated every ninety days.", "metadata": {"source": "keys.txt"}},
]


def test_an_answer_of_the_profile_cites_the_items_of_its_context() -> None:
    node = GroundedGeneratorNode(GroundedGeneratorConfig(name="g", llm_config=LLMConfig(), system_prompt=""))
    answer = run(node, query=QUESTION, context=CONTEXT, conversation_history=[])
    citation = {"id": "2", "source_id": "chunk_2", "snippet": "The keys are rotated every ninety days."}
    assert answer == {
        "response": "The keys are rotated every ninety days. [2]",
        "citations": [citation],
        "tokens_used": 0,
    }


def test_a_language_model_reads_the_system_prompt_and_the_history() -> None:
    history = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "Hello."}]
    with run_endpoint(stream_response("Every ninety days [2].")) as endpoint:
        model = LLMConfig(model="llama", base_url=endpoint.url)
        node = GroundedGeneratorNode(
            GroundedGeneratorConfig(name="g", llm_config=model, system_prompt="You are a pirate.", temperature=0.5)
        )
        answer = run(
            node,
            query=QUESTION,
            context=CONTEXT,
            conversation_history=[*history, {"role": "user", "content": QUESTION}],
        )
    assert answer["response"] == "Every ninety days [2]."
    roles = [message["role"] for message in endpoint.prompts[0]]
    assert roles == ["system", "user", "assistant", "user"]
    assert endpoint.prompts[0][0]["content"].startswith("You are a pirate.")
    assert endpoint.requests[0].body["temperature"] == 0.5


def test_fused_results_name_the_searches_that_found_them() -> None:
    results = {
        "vector": [{"id": "a", "score": 0.9}, {"id": "b", "score": 0.8}],
        "bm25": [{"id": "b", "score": 7}, {"id": "c", "score": 5}],
    }
    fused = run(HybridFusionNode(HybridFusionConfig(name="f")), retrieval_results=results)["fused_results"]
    assert fused[0] == {"id": "b", "score": 1 / 62 + 1 / 61, "sources": ["vector", "bm25"]}
    assert [result["id"] for result in fused] == ["b", "a", "c"]


def test_a_conversation_is_remembered_under_its_session() -> None:
    node = ConversationStateNode(ConversationStateConfig(name="s", memory_store="test", max_turns=2))
    run(node, session_id="one", user_message="Where are the sluice gates?")
    run(node, session_id="one", assistant_message="At the harbour.")
    state = run(node, session_id="one", user_message="Who opens the gates?")
    assert state == {
        "session_id": "one",
        "conversation_history": [
            {"role": "assistant", "content": "At the harbour."},
            {"role": "user", "content": "Who opens the gates?"},
        ],
        "metadata": {"turn_count": 3, "topic": "gates"},
    }


def test_documents_of_hyper_kb_are_indexed_and_searched_by_their_metadata() -> None:
    retriever = SparseRetriever()
    documents = [
        {"id": "one", "content": "The keys are rotated every ninety days.", "metadata": {"year": 2025}},
        {"id": "two", "content": "The keys of the gates are kept at the harbour.", "metadata": {"year": 2026}},
    ]
    assert retriever.index_documents(documents) == 2
    assert {result["metadata"]["source"] for result in retriever.search("keys", top_k=5)} == {"one", "two"}
    (result,) = retriever.search("keys", filters={"year": 2026})
    assert (result["content"], result["retriever"]) == (documents[1]["content"], "bm25")
