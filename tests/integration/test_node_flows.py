"""The flows of the requirements, as far as the nodes that exist can be composed to them.

Missing are the steps of other nodes: rewriting, topic shift, coreference, classification, episodic memory, and the
planning of hops.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import stamina
from trees import HASHING, write

from rag_core.contract import nodes
from rag_core.contract.nodes import LLMConfig
from rag_core.evaluation.dataset import write_dataset
from rag_core.evaluation.question import CorpusDocument, Question
from rag_core.storage.postgres import Postgres

pytestmark = pytest.mark.postgres

TREE = {
    "keys.txt": "The keys are rotated every ninety days.\n",
    "gates.html": "<h1>Gates</h1><p>The sluice gates are opened at spring tide.</p>",
    "doors.txt": "The doors are painted by Ada in summer.\n",
}
QUESTION = "how often are the keys rotated?"
LLM = {"llm_config": LLMConfig(), "system_prompt": ""}


@pytest.fixture(autouse=True)
def environment(store: Postgres, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("RAG_STORE__URL", store.dsn)
    reranked = ("retrieval.type=reranked", "retrieval.retriever={type: dense}", "retrieval.reranker={type: lexical}")
    for setting in (*HASHING, *reranked, "parsing.sandbox=false"):
        path, _, value = setting.partition("=")
        monkeypatch.setenv("RAG_" + path.upper().replace(".", "__"), value)
    with stamina.set_testing(True, attempts=1):
        yield


@pytest.fixture
def flow_index(tmp_path: Path) -> None:
    folder = write(tmp_path / "docs", TREE)
    state = run("DocumentLoader", {"sources": [{"type": "file", "path": str(folder)}]}, source_type="file", **SOURCE)
    for name in ("ChunkingStrategy", "MetadataExtractor"):
        state = run(name, state)
    assert run("EmbeddingIndexer", state, vector_store="flow") == {"indexed": 3, "failures": []}


SOURCE: dict[str, Any] = {"source_config": {}}


def run(node: str, inputs: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    config = getattr(nodes, f"{node}Config")(name=node, **arguments)
    outputs: dict[str, Any] = asyncio.run(getattr(nodes, f"{node}Node")(config).run(inputs))
    return outputs


def test_flow_1_answers_from_a_vector_search_with_citations(flow_index: None) -> None:
    search = run("VectorSearch", {"query": QUESTION, "filters": {}}, vector_store="flow", top_k=3)
    answer = run("GroundedGenerator", {"query": QUESTION, "context": search["results"]}, **LLM)
    assert answer["response"] == "The keys are rotated every ninety days. [1]"
    assert answer["citations"][0]["source_id"] == search["results"][0]["id"]


def test_flow_2_fuses_reranks_and_compresses_before_it_answers(flow_index: None, tmp_path: Path) -> None:
    vector = run("VectorSearch", {"query": QUESTION}, vector_store="flow")["results"]
    bm25 = run("BM25Search", {"query": QUESTION}, vector_store="flow")["results"]
    fused = run("HybridFusion", {"retrieval_results": {"vector": vector, "bm25": bm25}})["fused_results"]
    assert fused[0]["sources"] == ["vector", "bm25"]
    reranked = run("ReRanker", {"query": QUESTION, "results": fused}, top_k=2)
    assert reranked["results"][0]["metadata"]["title"] == "keys"
    context = run("ContextCompressor", reranked, max_tokens=64)
    answer = run("GroundedGenerator", {"query": QUESTION, **context}, **LLM)
    (reference,) = run("CitationsFormatter", {**answer, **context})["citations"]
    assert reference["url"] == (tmp_path / "docs" / "keys.txt").as_uri()
    assert (reference["title"], reference["snippet"]) == ("keys", "The keys are rotated every ninety days.")


def test_flow_3_answers_in_a_conversation_and_updates_its_state(flow_index: None) -> None:
    session: dict[str, Any] = {"memory_store": "flow_3"}
    opened = run("SessionManagement", {"session_id": "s"}, **session)
    state = run("ConversationState", {"session_id": opened["session"]["id"], "user_message": QUESTION}, **session)
    search = run("VectorSearch", {"query": QUESTION}, vector_store="flow")
    context = run("ContextCompressor", search)
    answer = run("GroundedGenerator", {"query": QUESTION, **context, **state}, **LLM)
    checked = run("HallucinationGuard", {**answer, **context})
    assert checked["route"] == "answer"
    message = {"session_id": "s", "assistant_message": checked["response"]}
    state = run("ConversationState", message, **session)
    assert [turn["role"] for turn in state["conversation_history"]] == ["user", "assistant"]
    assert state["metadata"]["turn_count"] == 2


def test_flow_5_evaluates_retrieval_and_answers_on_a_dataset(tmp_path: Path) -> None:
    corpus = [
        CorpusDocument(id="gates", text="The sluice gates are opened at spring tide.", title="Gates"),
        CorpusDocument(id="keys", text="The keys are rotated every ninety days.", title="Keys"),
    ]
    questions = [
        Question(id="q1", text="when are the sluice gates opened?", grades={"gates": 1}),
        Question(id="q2", text="how often are the keys rotated?", grades={"keys": 1}),
    ]
    write_dataset(tmp_path / "set", corpus, questions)
    dataset = run("Dataset", {}, path=str(tmp_path / "set"))
    run("EmbeddingIndexer", run("ChunkingStrategy", dataset), vector_store="golden")
    results = {
        query["query_id"]: run("VectorSearch", query, vector_store="golden")["results"] for query in dataset["queries"]
    }
    report = run("RetrievalEvaluation", {"queries": dataset["queries"], "results": results})
    assert report["metrics"] == {"recall_at_k": {"5": 1.0, "10": 1.0}, "mrr": 1.0, "ndcg": 1.0, "map": 1.0}
    answer = run("GroundedGenerator", {"query": questions[1].text, "context": results["q2"]}, **LLM)
    judged = {"query": questions[1].text, "context": results["q2"], **answer}
    quality = run("AnswerQualityEvaluation", {**judged, "references": ["every ninety days"]})["answer_quality"]
    assert quality["faithfulness"] == 1.0
    assert 0 < quality["completeness"] < 1
    verdict = run("LLMJudge", judged, llm_config=LLMConfig())["verdict"]
    assert [claim["grade"] for claim in verdict["claims"]] == ["supported"]
    lost = {**results, "q1": results["q2"][:1]}
    responses = {"q2": {**judged, "verdict": verdict}}
    analysis = run("FailureAnalysis", {"queries": dataset["queries"], "results": lost, "responses": responses})
    assert analysis["categories"] == {"pool_miss": 1}
    assert analysis["failures"] == [
        {"query_id": "q1", "label": "pool_miss", "detail": "the results do not contain it"},
    ]


def test_a_document_that_cannot_be_indexed_is_a_failure_and_the_others_are_stored() -> None:
    chunks = [{"id": str(n), "document_id": f"d/{n}", "content": f"Keys {n}.", "metadata": {}} for n in range(3)]
    index = {"vector_store": "failing"}
    assert run("EmbeddingIndexer", {"chunks": chunks[:1]}, **index) == {"indexed": 1, "failures": []}
    outputs = run("EmbeddingIndexer", {"chunks": [{**chunks[1], "embedding": [1.0]}, chunks[2]]}, **index)
    (failure,) = outputs["failures"]
    assert (outputs["indexed"], failure["document_id"], failure["stage"]) == (1, "d/1", "split")
    assert "must have the 64 dimensions" in failure["reason"]


def test_documents_that_are_the_same_are_not_indexed_again_and_missing_ones_are_deleted() -> None:
    documents = [{"id": f"d{n}", "content": f"Document {n} is about keys.", "metadata": {}} for n in range(5)]
    index = {"vector_store": "delta"}
    first = run("IncrementalIndexer", {"documents": documents}, **index)
    assert first == {"added": 5, "changed": 0, "deleted": 0, "same": 0, "failures": []}
    changed = [{**documents[0], "content": "Document 0 is about gates."}, *documents[1:4]]
    second = run("IncrementalIndexer", {"documents": changed}, **index)
    assert second == {"added": 0, "changed": 1, "deleted": 1, "same": 3, "failures": []}
    sources = [
        result["metadata"]["source"] for result in run("BM25Search", {"query": "gates keys"}, **index)["results"]
    ]
    assert sorted(sources) == ["d0", "d1", "d2", "d3"]
    with pytest.raises(ValueError, match="delete"):
        run("IncrementalIndexer", {"documents": documents[1:2]}, **index)
