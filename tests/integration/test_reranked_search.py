"""Rerankers of the settings, behind a store."""

from pathlib import Path

import pytest
import tiny_models
from trees import HASHING, write

from rag_core import KnowledgeBase, open_knowledge_base
from rag_core.storage.postgres import Postgres

pytestmark = pytest.mark.postgres

QUESTION = "how do i turn the keys of a house"
TREE = {f"{n}.md": f"The keys {'of a house ' * n} turn {'weekly ' * (5 - n)} by night.\n" for n in range(5)}


@pytest.fixture
def docs(store: Postgres, tmp_path: Path) -> Postgres:
    with open_with_reranker(store) as knowledge:
        knowledge.ingest(write(tmp_path / "docs", TREE))
    return store


def open_with_reranker(store: Postgres, *reranker: str) -> KnowledgeBase:
    retrieval = "{type: dense}"
    if reranker:
        options = ", ".join(reranker)
        retrieval = f"{{type: reranked, timeout_ms: 150000, retriever: {{type: dense}}, reranker: {{{options}}}}}"
    return open_knowledge_base(store.dsn, settings=[*HASHING, f"retrieval={retrieval}"])


@pytest.mark.parametrize("kind", ["cross_encoder", "late_interaction", "lexical"])
def test_hits_are_in_the_order_of_the_reranker(docs: Postgres, tmp_path: Path, kind: str) -> None:
    model = tiny_models.bert_files(tmp_path / "model", "ForSequenceClassification" if kind == "cross_encoder" else "")
    with open_with_reranker(docs, f"type: {kind}", *([] if kind == "lexical" else [f"model: {model}"])) as knowledge:
        hits, stages = knowledge.explain(QUESTION, k=5)
    assert [stage.error for stage in stages if stage.stage == "rerank"] == [""]
    assert [hit.score for hit in hits] == sorted((hit.scores["rerank"] for hit in hits), reverse=True)
    assert len({hit.score for hit in hits}) > 1
    assert all(set(hit.scores) == {"dense", "rerank"} for hit in hits)


def test_without_its_model_the_hits_stay_as_they_were_and_the_stage_says_why(docs: Postgres, tmp_path: Path) -> None:
    with open_with_reranker(docs) as knowledge:
        expected = knowledge.search(QUESTION, k=5)
    with open_with_reranker(docs, "type: cross_encoder", f"model: {tmp_path / 'missing'}") as knowledge:
        hits, stages = knowledge.explain(QUESTION, k=5)
    assert hits == expected
    (rerank,) = [stage for stage in stages if stage.stage == "rerank"]
    assert "give a folder with its files" in rerank.error
