"""The demo's questions find the documents that answer them, before and after the handbook changes."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from rag_core import KnowledgeBase, open_knowledge_base
from rag_core.storage.postgres import Postgres

pytestmark = [pytest.mark.postgres, pytest.mark.model]

DEMO = Path(__file__).parents[2] / "demo"


@pytest.fixture
def knowledge(store: Postgres) -> Iterator[KnowledgeBase]:
    with open_knowledge_base(store.dsn) as knowledge:
        yield knowledge


def questions(name: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in (DEMO / name).read_text().splitlines()]


def is_found(knowledge: KnowledgeBase, folder: Path, question: dict[str, str], k: int) -> bool:
    uri = (folder / question["path"]).as_uri()
    return any(hit.origin.uri == uri for hit in knowledge.search(question["question"], k))


def apply_update(folder: Path) -> None:
    shutil.copytree(DEMO / "update", folder, dirs_exist_ok=True)
    for path in (DEMO / "update" / "DELETED").read_text().split():
        (folder / path).unlink()
    (folder / "DELETED").unlink()


def test_questions_find_their_documents_before_and_after_the_update(knowledge: KnowledgeBase, tmp_path: Path) -> None:
    folder = tmp_path / "handbook"
    shutil.copytree(DEMO / "corpus", folder)
    knowledge.ingest(folder)
    before = questions("questions.jsonl")
    hits = sum(is_found(knowledge, folder, question, k=5) for question in before)
    assert hits >= 12, f"{hits} of {len(before)} questions find their document among 5 hits"

    apply_update(folder)
    report = knowledge.ingest(folder)
    assert [report.documents[name] for name in ("added", "changed", "deleted")] == [5, 6, 4]
    after = questions("questions-after-update.jsonl")
    assert sum(is_found(knowledge, folder, question, k=5) for question in after) >= 4
    changed = knowledge.search("How often do we have to replace the signing keys of the control system?", 3)
    assert any("every 45 days" in hit.chunk.text for hit in changed)
    assert not any("every 90 days" in hit.chunk.text for hit in changed)


def test_answers_name_the_fact_and_cite_its_document_and_follow_the_update(
    knowledge: KnowledgeBase, tmp_path: Path
) -> None:
    folder = tmp_path / "handbook"
    shutil.copytree(DEMO / "corpus", folder)
    knowledge.ingest(folder)
    before = questions("questions.jsonl")
    assert sum(is_answered(knowledge, folder, question) for question in before) >= 10
    for question in ("Which enzyme does ribavirin inhibit?", "Who won the football world cup in 1998?"):
        assert knowledge.ask(question).answer.finish == "abstained"

    apply_update(folder)
    knowledge.ingest(folder)
    after = questions("questions-after-update.jsonl")
    assert sum(is_answered(knowledge, folder, question) for question in after) >= 4
    changed = knowledge.ask("How often do we have to replace the signing keys of the control system?").answer
    assert "every 45 days" in changed.text
    assert "every 90 days" not in changed.text


def is_answered(knowledge: KnowledgeBase, folder: Path, question: dict[str, str]) -> bool:
    answer = knowledge.ask(question["question"]).answer
    uri = (folder / question["path"]).as_uri()
    return question["fact"] in answer.text and any(citation.uri == uri for citation in answer.citations)
