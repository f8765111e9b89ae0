"""Thirty of the demo's hundred conversations: follow-ups are answered from the right documents.

`rag evaluate demo` asks all of them.
"""

from pathlib import Path

import pytest

from jobs.script_runner import SessionAsker, run_scripts
from rag_core import open_knowledge_base
from rag_core.evaluation.script_figures import measure_scripts
from rag_core.evaluation.scripted_conversations import CORPUS, read_scripts
from rag_core.storage.postgres import Postgres
from rag_core.types import DEFAULT_COLLECTION

pytestmark = [pytest.mark.postgres, pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(1800)]

DEMO = Path(__file__).parents[2] / "demo"
CONVERSATIONS = 30
MIN_FOLLOW_UPS, MIN_RATIO = 0.8, 1.6
"""Below what was measured: .875 of the follow-ups, 2.19 times the share without history."""


def test_follow_ups_are_answered_from_the_right_document_more_often_than_without_history(store: Postgres) -> None:
    with open_knowledge_base(store.dsn) as knowledge:
        knowledge.ingest(DEMO / CORPUS)
        asker = SessionAsker(knowledge=knowledge, collection=DEFAULT_COLLECTION, corpus=DEMO / CORPUS)
        figures = measure_scripts(list(run_scripts(asker.ask, read_scripts(DEMO)[:CONVERSATIONS], callers=4)))
    follow_ups = figures.groups["follow-ups"]
    assert figures.errors == []
    assert figures.foreign == {}
    assert follow_ups.measures["right_document"].mean >= MIN_FOLLOW_UPS
    assert follow_ups.ratio is not None
    assert follow_ups.ratio >= MIN_RATIO
