"""Every node of the node interface, compared with a table that was written from the requirements.

The nodes run in the order of the table on the embedded store: each reads what those before it have returned.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import stamina
from fakes.replies import stored_reply
from pydantic import ValidationError
from trees import HASHING, write

import rag_core
from rag_core.contract import nodes
from rag_core.contract.nodes import LLMConfig, NodeConfig, RetryConfig
from rag_core.evaluation.dataset import write_dataset
from rag_core.evaluation.question import CorpusDocument, Question
from rag_core.storage.postgres import Postgres
from rag_core.storage.replies import Replies
from rag_core.types import DEFAULT_TENANT

pytestmark = pytest.mark.postgres

REQUIRED: Any = ...
LLM = LLMConfig()

TABLE: Mapping[str, tuple[str, Mapping[str, Any], set[str], set[str]]] = {
    # node: node_type, fields with their defaults, input keys, output keys
    "Dataset": ("dataset", {"path": REQUIRED, "split": "test"}, set(), {"documents", "queries"}),
    "DocumentLoader": (
        "document_loader",
        {
            "source_type": REQUIRED,
            "source_config": REQUIRED,
            "format_handlers": ["pdf", "html", "txt", "docx"],
            "batch_size": 100,
        },
        {"sources"},
        {"documents"},
    ),
    "ChunkingStrategy": (
        "chunking_strategy",
        {"unit": "tokens", "chunk_size": 200, "chunk_overlap": 40},
        {"documents"},
        {"chunks"},
    ),
    "MetadataExtractor": ("metadata_extractor", {}, {"documents", "chunks"}, {"documents", "chunks"}),
    "EmbeddingIndexer": ("embedding_indexer", {"vector_store": REQUIRED}, {"chunks"}, {"indexed", "failures"}),
    "IncrementalIndexer": (
        "incremental_indexer",
        {"vector_store": REQUIRED, "source": "documents"},
        {"documents"},
        {"added", "changed", "deleted", "same", "failures"},
    ),
    "VectorSearch": (
        "vector_search",
        {
            "vector_store": REQUIRED,
            "top_k": 10,
            "score_threshold": 0.0,
            "filter_metadata": {},
            "include_metadata": True,
        },
        {"query", "filters"},
        {"results"},
    ),
    "BM25Search": (
        "bm25_search",
        {
            "vector_store": REQUIRED,
            "top_k": 10,
            "score_threshold": 0.0,
            "filter_metadata": {},
            "include_metadata": True,
            "k1": 1.5,
            "b": 0.75,
        },
        {"query", "filters"},
        {"results"},
    ),
    "HybridFusion": (
        "hybrid_fusion",
        {"strategy": "rrf", "weights": {}, "rrf_k": 60, "top_k": 10},
        {"retrieval_results"},
        {"fused_results"},
    ),
    "ReRanker": ("re_ranker", {"model": "", "llm_config": LLM, "top_k": 10}, {"query", "results"}, {"results"}),
    "ContextCompressor": (
        "context_compressor",
        {"strategy": "concatenate", "max_items": 8, "max_tokens": 3000, "near_duplicate": 0.9},
        {"results"},
        {"context"},
    ),
    "SessionManagement": (
        "session_management",
        {"memory_store": REQUIRED, "session_ttl": 3600},
        {"session_id"},
        {"session", "closed", "active_sessions"},
    ),
    "ConversationState": (
        "conversation_state",
        {"memory_store": REQUIRED, "max_turns": 50, "session_ttl": 3600},
        {"session_id", "user_message"},
        {"session_id", "conversation_history", "metadata"},
    ),
    "CoreferenceResolver": (
        "coreference_resolver",
        {"llm_config": LLM},
        {"query", "conversation_history"},
        {"resolved_query", "references"},
    ),
    "QueryRewrite": (
        "query_rewrite",
        {"llm_config": LLM},
        {"query", "conversation_history"},
        {"rewritten_query", "variants"},
    ),
    "QueryClassifier": (
        "query_classifier",
        {"llm_config": LLM},
        {"query", "conversation_history"},
        {"intent", "route"},
    ),
    "TopicShiftDetector": (
        "topic_shift_detector",
        {"sensitivity": "medium"},
        {"query", "conversation_history"},
        {"is_shift", "drift", "conversation_history"},
    ),
    "GroundedGenerator": (
        "grounded_generator",
        {
            "llm_config": REQUIRED,
            "system_prompt": REQUIRED,
            "citation_style": "inline",
            "max_tokens": 1024,
            "temperature": 0.1,
        },
        {"query", "context", "conversation_history"},
        {"response", "citations", "tokens_used"},
    ),
    "QueryClarification": (
        "query_clarification",
        {"max_options": 5},
        {"query", "results", "conversation_history"},
        {"route", "question", "options"},
    ),
    "StreamingGenerator": (
        "streaming_generator",
        {
            "llm_config": REQUIRED,
            "system_prompt": REQUIRED,
            "citation_style": "inline",
            "max_tokens": 1024,
            "temperature": 0.1,
        },
        {"query", "context", "conversation_history"},
        {"stream"},
    ),
    "CitationsFormatter": ("citations_formatter", {}, {"citations", "context"}, {"citations"}),
    "HallucinationGuard": (
        "hallucination_guard",
        {"llm_config": LLM},
        {"response", "context"},
        {"response", "route", "verdict"},
    ),
    "LLMJudge": ("llm_judge", {"llm_config": REQUIRED}, {"response", "context"}, {"verdict"}),
    "RetrievalEvaluation": (
        "retrieval_evaluation",
        {"recall_at_k": (5, 10), "ndcg_at": 10},
        {"queries", "results_by_query"},
        {"evaluations", "metrics"},
    ),
    "AnswerQualityEvaluation": (
        "answer_quality_evaluation",
        {"llm_config": LLM},
        {"query", "response", "context", "references"},
        {"answer_quality"},
    ),
    "FailureAnalysis": ("failure_analysis", {}, {"queries", "results_by_query"}, {"failures", "categories"}),
    "AnalyticsExport": ("analytics_export", {"path": REQUIRED}, {"evaluations", "metrics"}, {"path"}),
    "TurnAnnotation": (
        "turn_annotation",
        {"annotator": REQUIRED, "labels": ()},
        {"answer_id", "label"},
        {"annotations", "agreement"},
    ),
    "UserFeedbackCollection": ("user_feedback_collection", {}, {"answer_id", "rating", "signals"}, {"feedback"}),
    "FeedbackIngestion": ("feedback_ingestion", {}, {"feedback"}, {"feedback_id"}),
    "ABTesting": ("ab_testing", {"experiment": REQUIRED, "share": 0.5}, {"session_id"}, {"variant", "bucket"}),
}

# Each of the other nodes, and the module that it waits for. Whoever adds the module adds the node, and a row above.
MISSING = {
    "WebSearch": "retrieval/web.py",
    "SourceRouter": "retrieval/routed.py",
    "ConversationCompressor": "conversation/summary.py",
    "MemorySummarizer": "conversation/memory.py",
    "AnswerCaching": "answering/cached.py",
    "MultiHopPlanner": "retrieval/multihop.py",
    "PolicyCompliance": "answering/guarded.py",
    "MemoryPrivacy": "conversation/privacy.py",
    "DataAugmentation": "evaluation/augmentation.py",
}

ARGUMENTS: Mapping[str, Any] = {
    "path": "nowhere",
    "source_type": "file",
    "source_config": {},
    "annotator": "ada",
    "experiment": "shorter-answers",
    "vector_store": "walked",
    "memory_store": "walked",
    "llm_config": LLM,
    "system_prompt": "You answer questions.",
}
QUESTION = "how often are the keys rotated?"


def build(name: str, **arguments: Any) -> Any:
    """The node with the arguments that its configuration requires."""
    fields = TABLE[name][1]
    required = {field: ARGUMENTS[field] for field in fields if fields[field] is REQUIRED and field not in arguments}
    config = getattr(nodes, f"{name}Config")(name=name, **{**required, **arguments})
    return getattr(nodes, f"{name}Node")(config)


def run(node: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    outputs: dict[str, Any] = asyncio.run(node.run(inputs))
    return outputs


@pytest.fixture(autouse=True)
def no_waiting() -> Iterator[None]:
    with stamina.set_testing(True, attempts=1):
        yield


RERANKED = ("retrieval.type=reranked", "retrieval.retriever={type: dense}", "retrieval.reranker={type: lexical}")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for setting in (*HASHING, *RERANKED, "parsing.sandbox=false"):
        path, _, value = setting.partition("=")
        monkeypatch.setenv("RAG_" + path.upper().replace(".", "__"), value)


def test_each_node_of_the_requirements_exists_or_waits_for_its_module() -> None:
    assert len(TABLE) + len(MISSING) == 40
    exported = {name.removesuffix("Node") for name in nodes.__all__ if name.endswith("Node")}
    assert exported == set(TABLE)
    root = Path(rag_core.__file__).parent
    assert [name for name, module in MISSING.items() if (root / module).exists()] == []


@pytest.mark.parametrize("name", TABLE)
def test_the_configuration_of_a_node_is_that_of_the_table(name: str) -> None:
    node_type, fields, _, _ = TABLE[name]
    config_class = getattr(nodes, f"{name}Config")
    assert issubclass(config_class, NodeConfig)
    common = {"name": REQUIRED, "node_type": node_type, "enabled": True, "retry_config": RetryConfig()}
    actual = {
        field: REQUIRED if info.is_required() else info.get_default(call_default_factory=True)
        for field, info in config_class.model_fields.items()
    }
    assert actual == {**common, **fields}
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        build(name, unknown=1)
    with pytest.raises(ValidationError, match="frozen"):
        build(name).config.enabled = False


def test_retries_have_the_defaults_of_the_requirements() -> None:
    assert RetryConfig().model_dump() == {"max_retries": 3, "backoff_base": 2.0, "max_delay": 60.0}


@pytest.mark.slow
def test_every_node_runs_on_what_the_nodes_before_it_return(
    store: Postgres, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RAG_STORE__URL", store.dsn)
    folder = write(tmp_path / "docs", {"keys.txt": "The keys are rotated every ninety days.\n"})
    corpus = [CorpusDocument(id="gates", text="The sluice gates are opened at spring tide.", title="Gates")]
    write_dataset(tmp_path / "set", corpus, [Question(id="q1", text="when do gates open?", grades={"gates": 1})])
    state: dict[str, Any] = {
        "sources": [{"type": "file", "path": str(folder)}],
        "query": QUESTION,
        "user_message": QUESTION,
        "session_id": "sess_1",
        "filters": {},
        "references": ["every ninety days"],
        "answer_id": "ans_1",
        "label": "good",
        "rating": 1,
        "signals": ["copied"],
    }
    with store.connect() as connection:
        Replies(connection, DEFAULT_TENANT).add([stored_reply("ans_1")], timeout=60)
    for name, (_, _, input_keys, output_keys) in TABLE.items():
        inputs = {key.removesuffix("_by_query"): state[key] for key in input_keys}
        paths = {"Dataset": {"path": str(tmp_path / "set")}, "AnalyticsExport": {"path": str(tmp_path / "out.json")}}
        outputs = run(build(name, **paths.get(name, {})), inputs)
        assert set(outputs) == output_keys, name
        state |= outputs
        match name:
            case "BM25Search":
                state["retrieval_results"] = {"vector": state["results"], "bm25": outputs["results"]}
            case "HybridFusion":
                state["results"] = outputs["fused_results"]
            case "ContextCompressor":
                state["results_by_query"] = {"q1": state["results"]}
    assert_shapes(state)
    exported = json.loads((tmp_path / "out.json").read_text())
    assert exported == {key: state[key] for key in ("evaluations", "metrics")}
    with store.connect() as connection:
        (reply,) = Replies(connection, DEFAULT_TENANT).read()
    assert (reply.rating, reply.signals) == (1, ("copied",))


def assert_shapes(state: Mapping[str, Any]) -> None:
    """The members of the values that the requirements name."""
    (document,) = state["documents"]
    assert document.keys() == {"id", "content", "metadata"}
    assert {"source", "format", "title", "tags"} <= document["metadata"].keys()
    (chunk,) = state["chunks"]
    assert {"id", "document_id", "content", "metadata", "start_index", "end_index"} == chunk.keys()
    assert document["content"][chunk["start_index"] : chunk["end_index"]] == chunk["content"]
    for results in state["retrieval_results"].values():
        assert {"id", "content", "score", "metadata", "retriever"} == results[0].keys()
        assert {"source", "page", "section"} <= results[0]["metadata"].keys()
    assert {"id", "score", "sources"} <= state["fused_results"][0].keys()
    assert state["fused_results"][0]["sources"] == ["vector", "bm25"]
    assert state["response"] == "The keys are rotated every ninety days. [1]"
    (citation,) = state["citations"]
    assert citation == {
        "id": "1",
        "source_id": state["context"][0]["id"],
        "snippet": "The keys are rotated every ninety days.",
        "url": document["id"],
        "title": "keys",
    }
    assert (state["route"], state["verdict"]["grade"]) == ("answer", "supported")
    assert state["conversation_history"] == [{"role": "user", "content": QUESTION}]
    (evaluation,) = state["evaluations"]
    assert evaluation.keys() == {"query_id", "metrics"}
    assert evaluation["metrics"].keys() == {"recall_at_k", "mrr", "ndcg", "map"}
    assert evaluation["metrics"]["recall_at_k"].keys() == {"5", "10"}
    assert state["answer_quality"].keys() == {"faithfulness", "relevance", "completeness"}


@pytest.mark.parametrize("name", TABLE)
def test_a_node_that_is_not_enabled_returns_neutral_outputs_and_logs_it(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    inputs = {"documents": [], "chunks": []} if name == "MetadataExtractor" else {}
    with caplog.at_level("INFO", "rag_core.contract.nodes"):
        outputs = run(build(name, enabled=False), inputs)
    assert set(outputs) == TABLE[name][3]
    assert f"skipped the node {name}" in caplog.text


@pytest.mark.parametrize(
    "name", [name for name in TABLE if name not in ("Dataset", "DocumentLoader", "AnalyticsExport")]
)
def test_a_node_without_its_inputs_raises_value_error(name: str) -> None:
    with pytest.raises(ValueError, match=rf"the node {name} failed: inputs must have '"):
        run(build(name), {})
