"""The trace of an evaluation, from its command to the stages of each question."""

import os
import subprocess
from pathlib import Path

import pytest
from collector import ReceivedSpan, run_collector
from hosts import RAG
from trees import HASHING

from rag_core.evaluation.dataset import write_dataset
from rag_core.evaluation.question import CorpusDocument, Question
from rag_core.storage.postgres import Postgres

TEXTS = ("Signing keys are replaced every 45 days.", "Boats wait at the pontoon.", "The crane is painted in May.")
pytestmark = [pytest.mark.postgres, pytest.mark.slow]


@pytest.mark.parametrize(
    ("runner", "worker"),
    [("inline", "rag-evaluate"), pytest.param("ray", "rag-evaluate-worker", marks=pytest.mark.ray)],
)
def test_one_trace_leads_from_an_evaluation_to_the_stages_of_each_question(
    store: Postgres, tmp_path: Path, runner: str, worker: str
) -> None:
    corpus = [CorpusDocument(id=f"{n}", title=f"{n}", text=text) for n, text in enumerate(TEXTS)]
    questions = [Question(id=f"q{n}", text=text, grades={f"{n}": 1}) for n, text in enumerate(TEXTS)]
    write_dataset(tmp_path / "harbour", corpus, questions)
    settings = [word for setting in HASHING for word in ("--set", setting)]
    command = [*RAG, "evaluate", str(tmp_path / "harbour"), "--runner", runner, *settings]
    with run_collector() as collector:
        environment = {
            **os.environ,
            "RAG_STORE__URL": store.dsn,
            "RAG_HOME": str(tmp_path / "home"),
            "RAG_RETRIEVAL__TIMEOUT_MS": "60000",
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        }
        process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert process.returncode == 0, process.stderr
        spans = list(collector.spans)

    (evaluation,) = [span for span in spans if span.name == "evaluate"]
    assert (evaluation.service, evaluation.parent) == ("rag-evaluate", "")
    assert {span.trace for span in spans} == {evaluation.trace}
    question_spans = [span for span in spans if span.name == "question"]
    assert len(question_spans) >= len(TEXTS)
    assert {(span.service, span.parent) for span in question_spans} == {(worker, evaluation.id)}
    legs = [span for span in spans if span.name in ("dense", "bm25")]
    assert len(legs) >= 2 * len(TEXTS)
    assert {_root(span, spans) for span in legs} == {evaluation.id}
    assert not any(text in str(span) for span in spans for text in TEXTS)


def _root(span: ReceivedSpan, spans: list[ReceivedSpan]) -> str:
    """The id of the first span above this one."""
    by_id = {other.id: other for other in spans}
    while span.parent:
        span = by_id[span.parent]
    return span.id
