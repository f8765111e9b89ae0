"""A disabled stage is named with its reason wherever stages are reported, and the rest goes on without it."""

from pathlib import Path
from typing import Any

import gateways
import pytest
from drafts import TENANT
from gateways import build_services
from trees import hashing_settings, write

from rag_core.config import Settings
from rag_core.knowledge_base import KnowledgeBase
from rag_core.storage.postgres import Postgres
from serve.authentication.caller import Caller

pytestmark = pytest.mark.postgres

RETRIEVAL = """retrieval={type: reranked, retriever: {type: hybrid, fusion: {type: rrf},
  retrievers: {dense: {type: dense}, bm25: {type: bm25, enabled: false}}}, reranker: {type: lexical, enabled: false}}"""
SKIPPED = {
    "bm25": "retrieval.retriever.retrievers.bm25.enabled is false",
    "rerank": "retrieval.reranker.enabled is false",
}
QUESTION = "When do the gates open?"


@pytest.fixture
def settings(store: Postgres, tmp_path: Path) -> Settings:
    """Settings without a leg, a reranker, a scan and a guard, for a store with one document."""
    disabled = (RETRIEVAL, "scan.enabled=false", "guard.enabled=false")
    settings = hashing_settings(f"tenant={TENANT}", f"store.url={store.dsn}", "answering.budget=none", *disabled)
    with KnowledgeBase(settings) as knowledge:
        report = knowledge.ingest(write(tmp_path, {"gates.md": "# Gates\n\nGates open at spring tide."}))
    assert report.documents["completed"] == 1
    return settings


def test_a_search_names_them(settings: Settings) -> None:
    with KnowledgeBase(settings) as knowledge:
        hits, stages = knowledge.explain(QUESTION)
    assert set(hits[0].scores) == {"dense", "fused"}
    assert {report.stage: report.skipped for report in stages if report.skipped} == SKIPPED


def test_an_answer_names_them_and_is_not_degraded(settings: Settings) -> None:
    with KnowledgeBase(settings) as knowledge:
        reply = knowledge.ask(QUESTION)
    skipped = {report.stage: report.skipped for report in reply.stages if report.skipped}
    assert SKIPPED.items() <= skipped.items()
    assert skipped["judge"] == "guard.mode is off"
    assert reply.degraded == ()


def test_the_gateway_names_them(settings: Settings) -> None:
    async def search(client: Any) -> Any:
        return await client.post("/v1/retrieve", json={"query": QUESTION, "explain": True})

    body = gateways.run_with_gateway(build_services(settings), search, Caller(tenant=TENANT)).json()
    assert {stage["stage"]: stage["skipped"] for stage in body["stages"] if stage["skipped"]} == SKIPPED
    assert body["degraded"] == []
