"""The documents' flows of a conversation, end to end: hybrid with reranking (A-061), and several turns (A-062)."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fakes.openai_endpoint import Endpoint, run_endpoint, stream_response, whole_response
from trees import HASHING, write

from rag_core import KnowledgeBase, open_knowledge_base
from rag_core.storage.postgres import Postgres
from rag_core.types import Reply

pytestmark = pytest.mark.postgres

FILES = {
    "keys.md": "# Signing keys\n\nSigning keys are replaced every 45 days.\n\nOnly Ada Marsh may replace them.\n",
    "gates.md": "# Sluice gates\n\nThe sluice gates open at spring tide.\n\nOnly Bob Reed may open them.\n",
    "soup.md": "# Canteen\n\nSoup is served at noon.\n",
}
QUESTION, FOLLOW_UP = "How often are signing keys replaced?", "And who may do that?"
STANDALONE = "Who may replace the signing keys?"
RERANKED = (
    "retrieval={type: reranked, reranker: {type: lexical}, retriever: {type: hybrid, fusion: {type: rrf},"
    " retrievers: {dense: {type: dense}, bm25: {type: bm25}}}}"
)
REWRITE = json.dumps(
    {"standalone": STANDALONE, "resolved": [{"words": "that", "meaning": "replacing signing keys"}], "intent": "search"}
)


@contextmanager
def open_documents(store: Postgres, folder: Path, *settings: str) -> Iterator[KnowledgeBase]:
    with open_knowledge_base(store.dsn, settings=[*HASHING, RERANKED, *settings]) as knowledge:
        knowledge.ingest(write(folder, FILES))
        yield knowledge


@contextmanager
def open_with_model(store: Postgres, folder: Path) -> Iterator[tuple[KnowledgeBase, Endpoint]]:
    """A knowledge base whose model answers, rewrites, and answers again."""
    responses = (
        stream_response("Every 45 days [1]."),
        whole_response(REWRITE),
        stream_response("Only Ada Marsh may replace them [1]."),
    )
    with run_endpoint(*responses) as endpoint:
        model = f"type: openai, model: llama, base_url: '{endpoint.url}'"
        understanding = (
            f"conversation.understanding={{type: llm, model: llama, base_url: '{endpoint.url}', timeout_ms: 60000}}"
        )
        with open_documents(store, folder, f"generation={{{model}}}", understanding) as knowledge:
            yield knowledge, endpoint


def ran(reply: Reply) -> list[str]:
    """The stages of the turn itself that ran, in the order of their ends."""
    return [report.stage for report in reply.stages if not report.parent and not report.skipped]


def test_a_follow_up_is_answered_from_the_document_in_question_without_a_model(store: Postgres, tmp_path: Path) -> None:
    with open_documents(store, tmp_path) as knowledge:
        knowledge.ask(QUESTION, session_id="s")
        reply = knowledge.ask(FOLLOW_UP, session_id="s")
    assert reply.standalone == f"{FOLLOW_UP} (Signing keys)"
    assert "Ada Marsh" in reply.answer.text
    assert {citation.title for citation in reply.answer.citations} == {"Signing keys"}
    assert reply.degraded == ()


@pytest.mark.parametrize(("detection", "is_detected"), [("none", False), ("score", True)])
def test_a_follow_up_after_a_change_of_the_subject_refers_to_the_new_one(
    store: Postgres, tmp_path: Path, detection: str, is_detected: bool
) -> None:
    with open_documents(store, tmp_path, f"conversation.topic_shift={{type: {detection}}}") as knowledge:
        for question in (QUESTION, FOLLOW_UP, "Who replaces them?"):
            knowledge.ask(question, session_id="s")
        changed = knowledge.ask("When do the sluice gates open?", session_id="s").understanding
        first, second = (knowledge.ask(question, session_id="s") for question in ("Who opens them?", FOLLOW_UP))
    assert changed is not None
    assert changed.is_shift is is_detected
    assert first.standalone == "Who opens them? (Sluice gates)"
    assert second.standalone == f"{FOLLOW_UP} (Sluice gates)"
    assert "Bob Reed" in second.answer.text


def test_without_its_session_the_same_question_is_not_about_the_keys(store: Postgres, tmp_path: Path) -> None:
    with open_documents(store, tmp_path) as knowledge:
        knowledge.ask(QUESTION, session_id="s")
        reply = knowledge.ask(FOLLOW_UP, session_id="another")
    assert (reply.standalone, reply.understanding) == (FOLLOW_UP, None)


def test_the_stages_of_a_turn_with_a_history(store: Postgres, tmp_path: Path) -> None:
    with open_documents(store, tmp_path) as knowledge:
        knowledge.ask(QUESTION, session_id="s")
        reply = knowledge.ask(FOLLOW_UP, session_id="s")
    flow = ["history", "understand", "retrieve", "select", "generate", "judge", "remember"]
    assert [stage for stage in ran(reply) if stage in flow] == flow
    inner = {report.stage for report in reply.stages if report.parent}
    assert {"topic_shift", "coreference", "rewrite", "dense", "bm25", "fuse", "variants", "rerank"} <= inner


def test_a_session_goes_on_after_the_process_has_ended(store: Postgres, tmp_path: Path) -> None:
    with open_documents(store, tmp_path) as knowledge:
        knowledge.ask(QUESTION, session_id="s")
    with open_documents(store, tmp_path) as knowledge:
        assert "Ada Marsh" in knowledge.ask(FOLLOW_UP, session_id="s").answer.text


def test_a_model_rewrites_the_question_before_it_is_searched(store: Postgres, tmp_path: Path) -> None:
    with open_with_model(store, tmp_path) as (knowledge, endpoint):
        knowledge.ask(QUESTION, session_id="s")
        reply = knowledge.ask(FOLLOW_UP, session_id="s")
    _, rewriting, _ = endpoint.prompts
    assert QUESTION in rewriting[-1]["content"]
    assert reply.standalone == STANDALONE
    assert reply.understanding is not None
    assert [(variant.name, variant.text) for variant in reply.understanding.variants] == [
        ("question", FOLLOW_UP),
        ("rewrite", STANDALONE),
    ]
    assert reply.passages[0].hit.origin.title == "Signing keys"
    assert reply.answer.text == "Only Ada Marsh may replace them [1]."


def test_a_models_prompt_has_the_history_the_question_its_meaning_and_the_names_found(
    store: Postgres, tmp_path: Path
) -> None:
    with open_with_model(store, tmp_path) as (knowledge, endpoint):
        knowledge.ask(QUESTION, session_id="s")
        knowledge.ask(FOLLOW_UP, session_id="s")
    *_, writing = endpoint.prompts
    assert [message["role"] for message in writing] == ["system", "user", "assistant", "user"]
    assert writing[1]["content"] == QUESTION
    last = writing[-1]["content"]
    assert FOLLOW_UP in last
    assert STANDALONE in last
    assert "Ada Marsh" in last[last.index("These names occur in the passages") :]
