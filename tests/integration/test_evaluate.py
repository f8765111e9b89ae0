"""`rag evaluate` on a small dataset with the hashing embedder, from its arguments to its files."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from commands import rag_in_process
from fakes.openai_endpoint import HANG, Endpoint, ScriptedHttpResponse, run_endpoint, stream_response, whole_response
from trees import HASHING
from waiting import wait_until

from jobs.ingest import RunnerName
from jobs.journal import JOURNALS
from jobs.question_runner import QuestionRows, run_questions
from jobs.retrieval_traces import TraceTask
from jobs.row_runner import RowActor
from rag_cli.app import app
from rag_core.errors import RagError
from rag_core.evaluation.dataset import read_dataset, read_qrels, read_run, write_dataset
from rag_core.evaluation.metrics import measures, rank_ids
from rag_core.evaluation.question import CorpusDocument, Question
from rag_core.evaluation.rubric import load_rubric
from rag_core.evaluation.spans import Span
from rag_core.knowledge_base import KnowledgeBase
from rag_core.settings import load_settings
from rag_core.storage.catalog import Catalog
from rag_core.storage.postgres import Postgres
from rag_core.types import DEFAULT_TENANT

pytestmark = pytest.mark.postgres

THINGS = (
    "sluice",
    "turbine",
    "crane",
    "lantern",
    "anchor",
    "barrier",
    "pump",
    "valve",
    "rudder",
    "beacon",
    "ladder",
    "winch",
)
PATIENT = "60000"
"""Milliseconds: what is measured does not depend on how busy the machine is."""
RAY_TIMEOUT = 300.0
"""Seconds in which a job on Ray asks its first questions, even on a busy machine."""
COLLECTION = "evaluation-harbour-default"
GRADES = json.dumps({name: {"reason": "so", "grade": 4} for name in ("faithfulness", "relevance", "completeness")})
ANSWER = stream_response("The crew inspects it on Mondays [1].")
ENDLESS = ScriptedHttpResponse(steps=(*ANSWER.steps[:1], HANG))


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """A dataset with three documents per thing, of which the first answers its question. The last question's document
    has no text."""
    corpus = [
        CorpusDocument(id=f"{thing}/{n}", title=thing, text=f"{text}\n\nNumber {n} of its kind in the harbour.")
        for thing in THINGS
        for n, text in enumerate((f"The {thing} is inspected on Mondays by the {thing} crew.", "Paint.", "Ropes."))
    ]
    questions = [
        Question(id=f"q {n}", text=f"When is the {thing} inspected?", grades={f"{thing}/0": 2, f"{thing}/1": 1})
        for n, thing in enumerate(THINGS)
    ]
    lacking = Question(id="lacking", text="Where is the ferry?", grades={"ferry/0": 1})
    write_dataset(tmp_path / "harbour", [*corpus, CorpusDocument(id="ferry/0", text=" ")], [*questions, lacking])
    return tmp_path / "harbour"


@pytest.fixture
def rag(store: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Any:
    for setting in HASHING:
        key, _, value = setting.partition("=")
        monkeypatch.setenv(f"RAG_{key.upper().replace('.', '__')}", value)
    monkeypatch.setenv("RAG_RETRIEVAL__TIMEOUT_MS", PATIENT)
    monkeypatch.setenv("RAG_STORE__URL", store.dsn)
    monkeypatch.setenv("RAG_HOME", str(tmp_path / "home"))

    command = rag_in_process(capfd)

    def run(*arguments: object, code: int = 0) -> str:
        ran = command(*arguments)
        assert ran.code == code, ran.err
        return ran.out

    return run


@pytest.mark.slow
def test_an_evaluation_finds_what_answers_and_says_where_the_rest_was_lost(rag: Any, dataset: Path) -> None:
    report = json.loads(rag("evaluate", dataset, "--json"))
    assert (report["dataset"], report["collection"], report["questions"]) == ("harbour", COLLECTION, 13)
    final = report["stages"]["final"]
    assert final["measures"]["success@5"]["mean"] == pytest.approx(12 / 13)
    assert final["measures"]["ndcg@10"]["low"] < final["measures"]["ndcg@10"]["mean"] <= 12 / 13
    assert final["measures"]["recall@100"]["mean"] <= report["stages"]["union"]["measures"]["recall@100"]["mean"]
    assert report["headroom"] >= 0
    assert final["latency_ms"]["p50"] <= final["latency_ms"]["p95"] <= final["latency_ms"]["p99"]
    assert final["latency_ms"]["mean"] <= final["latency_ms"]["p99"]
    assert report["lost"]["store"] == 1
    assert sum(report["lost"].values()) == 25
    assert report["failures"] == []


@pytest.mark.slow
def test_grades_of_documents_that_are_gone_are_reported_and_not_scored(rag: Any, dataset: Path) -> None:
    with (dataset / "qrels" / "test.tsv").open("a") as grades:
        grades.write("q 0\tgone\t2\n")
    report = json.loads(rag("evaluate", dataset, "--json"))
    assert sum(report["lost"].values()) == 25
    assert report["notices"][-1] == "1 graded documents are not in the corpus, and are not scored: gone"


def add_references(dataset: Path) -> None:
    """Adds references for all questions, and one question that the corpus does not answer."""
    rows = [{"_id": f"q {n}", "answers": ["on Mondays"]} for n in range(len(THINGS))]
    rows += [{"_id": "none", "question": "Wer hat Angst vorm Wolf?", "answerable": False}]
    (dataset / "answers.jsonl").write_text("\n".join(map(json.dumps, rows)))


@pytest.mark.slow
def test_answers_are_measured_by_the_profile_s_own_pipeline(rag: Any, dataset: Path, tmp_path: Path) -> None:
    add_references(dataset)
    report = json.loads(rag("evaluate", dataset, "--answers", "--json", "--out", tmp_path / "out"))
    answers, rows = report["answers"], pq.read_table(tmp_path / "out" / "answers.parquet").to_pylist()
    assert (report["run"], report["coverage"]) == (str(tmp_path / "out"), 1.0)
    assert (answers["questions"], answers["valid"], answers["failures"]) == (14, True, [])
    assert answers["measures"]["contains_reference"]["mean"] > 0.5
    assert {measure["coverage"] for measure in answers["measures"].values()} == {1.0}
    assert [row["question_id"] for row in rows] == [*(f"q {n}" for n in range(12)), "lacking", "none"]
    assert rows[0]["passages"][0]["document"].startswith("sluice/")
    assert not (tmp_path / "out" / "answers.partial.jsonl").exists()
    assert (tmp_path / "out" / "report.md").read_text().startswith("# VALID: harbour with default\n")
    assert "<h1>harbour with default</h1>" in (tmp_path / "out" / "report.html").read_text()
    assert len((tmp_path / "out" / "per_question.jsonl").read_text().splitlines()) == 14
    printed = rag("evaluate", dataset, "--own-documents")
    assert "worst questions" in printed
    assert "answers to 14 questions" in printed
    assert "citation_recall" in printed


@pytest.mark.slow
def test_each_failed_question_has_a_label_in_the_report_in_the_files_and_in_the_table(
    rag: Any, dataset: Path, tmp_path: Path
) -> None:
    add_references(dataset)
    out = tmp_path / "out"
    report = json.loads(rag("evaluate", dataset, "--answers", "--json", "--out", out, "--set", "packing.passages=1"))
    waterfall = report["waterfall"]
    assert waterfall["questions"] == 14
    assert waterfall["failed"] == sum(waterfall["labels"].values())
    assert waterfall["labels"]["not_indexed"] == 1
    examples = {example["question"]: example for example in waterfall["examples"]}
    assert (examples["lacking"]["label"], examples["lacking"]["passages"]) == ("not_indexed", False)
    labels = {row["question_id"]: row["failure"] for row in pq.read_table(out / "answers.parquet").to_pylist()}
    assert sum(label is not None for label in labels.values()) == waterfall["failed"]
    for row in pq.read_table(out / "questions.parquet").to_pylist():
        assert row["failure"] == labels[row["question_id"]]
    printed = rag("evaluate", dataset, "--retriever", write_yaml(tmp_path, "retrieval: {type: bm25}"))
    assert "1 of 13 questions failed; their answers were lost at:" in printed
    assert [line.split()[:3] for line in printed.splitlines() if "█" in line] == [["not_indexed", "1", "7.7%"]]


def write_yaml(folder: Path, text: str) -> Path:
    path = folder / "retriever.yaml"
    path.write_text(text)
    return path


@pytest.mark.slow
def test_a_run_whose_measures_cover_too_little_is_invalid(rag: Any, dataset: Path, monkeypatch: Any) -> None:
    add_references(dataset)
    ask = KnowledgeBase.ask

    def fail_once(knowledge: KnowledgeBase, question: str, *arguments: Any, **options: Any) -> Any:
        if "sluice" in question:
            raise RagError("no model")
        return ask(knowledge, question, *arguments, **options)

    monkeypatch.setattr(KnowledgeBase, "ask", fail_once)
    printed = rag("evaluate", dataset, "--answers", code=5)
    assert "not measured: exact_match of question q 0  RagError: no model" in printed
    assert "invalid: a measure covers less than 95% of its questions" in printed


@pytest.mark.slow
def test_a_model_grades_the_answers_and_the_report_names_the_rubric(rag: Any, dataset: Path, tmp_path: Path) -> None:
    with run_endpoint(whole_response(GRADES), whole_response("Well.")) as judge:
        options = ("--judge", judge.url, "--judge-model", "llama", "--limit", 2, "--json", "--out", tmp_path / "out")
        report = json.loads(rag("evaluate", dataset, *options, code=5))
    assert report["judge"]["rubric"] == {"model": "llama", "version": 1, "hash": load_rubric().digest}
    assert report["answers"]["measures"]["rubric_relevance"]["coverage"] == 0.5
    (reason,) = {row["reason"] for row in report["answers"]["failures"]}
    assert reason.startswith("JudgeError: the judge must answer with a grade from 1 to 5 for faithfulness")
    refused = rag("evaluate", dataset, "--judge", "http://127.0.0.1:9/v1", "--json", code=2)
    assert "--judge requires --judge-model" in refused


@pytest.mark.slow
def test_tokens_of_the_generator_are_in_the_file_of_answers(rag: Any, dataset: Path, tmp_path: Path) -> None:
    with run_endpoint(ANSWER) as endpoint:
        rag("evaluate", dataset, "--answers", *use_generator(endpoint), "--limit", 2, "--json", "--out", tmp_path)
    rows = pq.read_table(tmp_path / "answers.parquet").to_pylist()
    assert [(row["prompt_tokens"], row["completion_tokens"]) for row in rows] == [(40, 4)] * 2


@pytest.mark.slow
def test_several_datasets_have_a_mean(rag: Any, dataset: Path, tmp_path: Path) -> None:
    add_references(dataset)
    other = tmp_path / "quay"
    shutil.copytree(dataset, other)
    reports = json.loads(rag("evaluate", dataset, other, "--answers", "--json", "--out", tmp_path / "out"))
    assert [report["dataset"] for report in reports] == ["harbour", "quay", "mean"]
    first, _, mean = (report["answers"]["measures"]["token_f1"]["mean"] for report in reports)
    assert mean == pytest.approx(first)
    assert (tmp_path / "out" / "quay" / "report.json").is_file()
    assert "require one dataset, got 2" in rag("evaluate", dataset, other, "--collection", "c", "--json", code=2)
    assert "must have different names, got quay, quay" in rag("evaluate", other, other, "--json", code=2)


@pytest.mark.slow
def test_the_table_has_a_line_for_each_stage(rag: Any, dataset: Path) -> None:
    printed = rag("evaluate", dataset, "--limit", 12)
    lines = {line.split()[0]: line.split() for line in printed.splitlines() if line.strip()}
    assert printed.splitlines()[0].strip() == "harbour with default: 12 questions, 100 chunks"
    assert lines["stage"][:3] == ["stage", "nDCG@10", "R@10"]
    assert len(lines["final"]) == 1 + 2 * 5 + 2
    assert len(lines["fetch"]) == 3
    assert "of 24 relevant documents" in printed
    assert re.search(r"hits: P@10 \.\d{3}, F1@10 \.\d{3}, mean [\d.]+ ms, p99 [\d.]+ ms; [\d.]+ questions/s", printed)
    assert re.search(r"up to date after [\d.]+ s, with [\d.]+ s for indexes", printed)


def add_conversations(dataset: Path) -> None:
    """Makes the last half of the questions follow-ups that name nothing, with rewrites that do."""
    rows = []
    for n, thing in enumerate(THINGS):
        turns = [f"What is the {thing}?", "When is it inspected?"] if n >= 6 else [f"When is the {thing} inspected?"]
        rewrite = f"When is the {thing} inspected?"
        rows.append({"_id": f"q {n}", "user_turns": turns, "rewrite_mixtral": rewrite})
    (dataset / "rewrites.jsonl").write_text("\n".join(map(json.dumps, rows)))
    queries = [{"_id": row["_id"], "text": row["user_turns"][-1]} for row in rows]
    queries.append({"_id": "lacking", "text": "Where is the ferry?"})
    (dataset / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)))


@pytest.mark.slow
def test_ways_of_searching_conversations_are_compared_over_a_padded_corpus(
    rag: Any, dataset: Path, tmp_path: Path
) -> None:
    add_conversations(dataset)
    other = tmp_path / "quay"
    write_dataset(other, [CorpusDocument(id="rope/0", title="rope", text="The rope is inspected on Fridays.")], [])
    options = ("--pad", other, "--conversation", "raw,fused,gold", "--out", tmp_path / "out")
    raw, fused, gold = json.loads(rag("evaluate", dataset, *options, "--json"))
    assert {run["collection"] for run in (raw, fused, gold)} == {"evaluation-harbour+quay-default"}
    assert (raw["conversation"], raw["padding"]) == ("raw", ["quay"])
    assert {name: group["questions"] for name, group in fused["groups"].items()}["turn 2"] == 6
    means = [run["stages"]["final"]["measures"]["ndcg@10"]["mean"] for run in (raw, fused, gold)]
    assert means[0] < means[1] <= means[2]
    assert "variants" in fused["stages"]
    compared = {(row["over"], row["group"]): row["comparison"] for row in gold["conversation_comparisons"]}
    assert compared["raw", "all"]["better"] == 6
    assert ("fused", "turn 2") in compared
    named = rag("compare", tmp_path / "out" / "raw", tmp_path / "out" / "fused")
    assert "harbour: conversations were searched in different ways: A raw and B fused" in named
    printed = rag("evaluate", dataset, "--conversation", "raw,fused")
    assert "hits by place in the conversation" in printed
    assert "nDCG@10 of fused over raw" in printed


@pytest.mark.slow
def test_ways_of_searching_conversations_require_conversations(rag: Any, dataset: Path) -> None:
    assert "must be any of raw, rewritten, fused, gold" in rag(
        "evaluate", dataset, "--conversation", "all", "--json", code=2
    )
    assert "require questions with a history" in rag(
        "evaluate", dataset, "--conversation", "raw,fused", "--json", code=2
    )
    assert "requires rewrites.jsonl" in rag("evaluate", dataset, "--conversation", "gold", "--json", code=2)


@pytest.mark.slow
def test_a_corpus_that_is_in_step_is_not_ingested_again(rag: Any, dataset: Path, store: Postgres) -> None:
    first = json.loads(rag("evaluate", dataset, "--json"))
    second = json.loads(rag("evaluate", dataset, "--json"))
    assert {name: stage["measures"] for name, stage in first["stages"].items()} == {
        name: stage["measures"] for name, stage in second["stages"].items()
    }
    rag("evaluate", dataset, "--json")  # files as young as the first listing were read once more by the second
    jobs = json.loads(rag("jobs", "list", "--json"))
    with store.connect() as connection:
        (source,) = Catalog(connection, DEFAULT_TENANT).sources(COLLECTION)
    assert source.documents == 37
    assert (jobs[0]["documents"], jobs[-1]["documents"]) == (0, 37)


@pytest.mark.slow
def test_the_files_hold_what_was_measured(rag: Any, dataset: Path, tmp_path: Path) -> None:
    earlier = [tmp_path / "out" / name for name in ("answers.parquet", "runs/splade.trec")]
    for file in earlier:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("an earlier run")
    report = json.loads(rag("evaluate", dataset, "--json", "--out", tmp_path / "out"))
    assert not any(file.exists() for file in earlier)
    assert json.loads((tmp_path / "out" / "report.json").read_text()) == report
    assert report["questions_per_second"] > 0
    assert report["ingest_seconds"]["total"] >= report["ingest_seconds"]["embed"] > 0
    means = {leg: report["stages"][leg]["measures"]["ndcg@10"]["mean"] for leg in ("bm25", "dense")}
    # equal scores are in the order of ids, which depend on the folder: either leg can be the better one
    assert [(improvement["stage"], improvement["over"]) for improvement in report["improvements"]] == [
        ("fuse", max(means, key=means.get))
    ]
    qrels, run = read_qrels(tmp_path / "out" / "qrels.trec"), read_run(tmp_path / "out" / "runs" / "final.trec")
    assert list(run)[:2] == ["q%200", "q%201"]
    mean = sum(measures(rank_ids(run[id]), qrels[id])["map"] for id in run) / len(qrels)
    assert mean == pytest.approx(report["stages"]["final"]["measures"]["map"]["mean"])
    rows = pq.read_table(tmp_path / "out" / "questions.parquet").to_pylist()
    assert [row["question_id"] for row in rows] == [f"q {n}" for n in range(12)] + ["lacking"]
    assert dict(rows[-1]["lost"]) == {"ferry/0": "store"}
    final = {stage["stage"]: stage for stage in rows[0]["stages"]}["final"]
    assert dict(final["measures"])["success@5"] == 1.0
    assert final["documents"] == rank_ids(run["q%200"])


def test_where_nothing_can_be_written_nothing_is_measured(rag: Any, dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text("mine")
    refused = json.loads(rag("evaluate", dataset, "--out", tmp_path / "report.json", "--json", code=2))
    assert refused["error"]["message"].startswith("--out must be a folder that can be written to, got ")
    assert (tmp_path / "report.json").read_text() == "mine"
    assert json.loads(rag("collections", "list", "--json")) == []


@pytest.mark.slow
def test_a_run_that_is_compared_with_itself_is_equal(rag: Any, dataset: Path, tmp_path: Path) -> None:
    rag("evaluate", dataset, "--json", "--out", tmp_path / "out")
    run = tmp_path / "out" / "runs" / "final.trec"
    compared = json.loads(rag("evaluate", dataset, "--json", "--against", run))["comparison"]
    assert (compared["better"], compared["worse"], compared["equal"], compared["p"]) == (0, 0, 13, 1.0)


@pytest.mark.slow
def test_a_run_of_some_of_the_questions_is_compared_and_says_so(rag: Any, dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "one.trec").write_text("lacking Q0 nowhere 1 1.0 tag\n")
    printed = rag("evaluate", dataset, "--against", tmp_path / "one.trec")
    assert "better on 12 questions, worse on 0, equal on 1" in printed
    assert "one.trec answers 1 of 13 questions; the others count as 0" in printed


@pytest.mark.parametrize("run", ["", "another Q0 sluice/0 1 1.0 tag\n"])
def test_a_run_of_other_questions_is_refused(rag: Any, dataset: Path, tmp_path: Path, run: str) -> None:
    (tmp_path / "other.trec").write_text(run)
    refused = json.loads(rag("evaluate", dataset, "--against", tmp_path / "other.trec", "--json", code=2))["error"]
    rule = "--against must answer questions of harbour, split test, got none of 13 in "
    assert refused["message"] == f"{rule}{tmp_path / 'other.trec'}"
    assert json.loads(rag("collections", "list", "--json")) == []


@pytest.mark.slow
def test_a_folder_of_files_is_ingested_in_place(rag: Any, dataset: Path) -> None:
    (dataset / "html").mkdir()
    for thing in THINGS:
        page = f"<html><title>{thing}</title><body><p>The {thing} is inspected on Mondays.</p></body></html>"
        (dataset / "html" / f"{thing}.html").write_text(page)
    grades = "".join(f"q {n}\t{thing}\t1\n" for n, thing in enumerate(THINGS))
    (dataset / "qrels" / "test.tsv").write_text(grades)
    report = json.loads(rag("evaluate", dataset, "--json"))
    assert report["stages"]["final"]["measures"]["success@1"]["mean"] == 1.0
    assert report["lost"]["store"] == 0


@pytest.mark.slow
def test_chunks_are_measured_where_answers_have_spans(rag: Any, store: Postgres, tmp_path: Path) -> None:
    """The store cuts the text and removes its tags and carriage returns; spans refer to the dataset's text."""
    filler = "\r\n\r\n".join(f"Nothing <b>about</b> it stands in paragraph {n} of many." for n in range(60))
    texts = {
        thing: f"{filler}\r\n\r\nThe <i>{thing}</i> opens at {n} sharp.\r\n{filler}" for n, thing in enumerate(THINGS)
    }
    words = {thing: f"<i>{thing}</i> opens at {n} sharp" for n, thing in enumerate(THINGS)}
    spans = {
        thing: Span(document=thing, start=(start := text.index(words[thing])), end=start + len(words[thing]))
        for thing, text in texts.items()
    }
    corpus = [CorpusDocument(id=thing, title=thing, text=text) for thing, text in texts.items()]
    questions = [
        Question(id=thing, text=f"When does the {thing} open?", grades={thing: 1}, spans=(spans[thing],))
        for thing in THINGS
    ]
    lacking = Question(id="ferry", text="When?", grades={}, spans=(Span(document="ferry", start=0, end=9),))
    write_dataset(tmp_path / "open", [*corpus, CorpusDocument(id="ferry", text=" " * 9)], [*questions, lacking])
    report = json.loads(rag("evaluate", tmp_path / "open", "--json", "--out", tmp_path / "out"))
    assert (report["questions_with_spans"], report["answers_in_no_chunk"]) == (13, 1)
    final = report["stages"]["final"]["chunk_measures"]
    assert final["success@100"]["mean"] == final["char_recall@100"]["mean"] == pytest.approx(12 / 13)
    assert 0 < final["char_iou@1"]["mean"] < 1
    rows = pq.read_table(tmp_path / "out" / "questions.parquet").to_pylist()
    with store.connect() as connection:
        stored = {
            str(chunk["id"]): chunk["text"]
            for document in Catalog(connection, DEFAULT_TENANT).documents("evaluation-open-default")
            for chunk in Catalog(connection, DEFAULT_TENANT).chunks(document["id"])
        }
    for n, row in enumerate(rows[:-1]):
        holding = [id for id, text in stored.items() if f"{row['question_id']} opens at {n} sharp" in text]
        assert row["relevant_chunks"] == holding
        assert set(holding) <= set({stage["stage"]: stage for stage in row["stages"]}["final"]["chunks"])
    printed = rag("evaluate", tmp_path / "open")
    assert "chunks by the answer spans of 13 questions; answers in no chunk: 1" in printed


@pytest.mark.slow
def test_a_retriever_of_a_file_is_measured_in_either_shape(rag: Any, dataset: Path, tmp_path: Path) -> None:
    foreign, native, other = (tmp_path / name for name in ("foreign.yaml", "own.yaml", "other.yaml"))
    foreign.write_text("retriever: {fusion_method: rrf, fusion_params: {k: 10}, dense_params: {dimension: 1024}}")
    native.write_text("retrieval: {type: bm25}")
    other.write_text("chunking: {tokens: 30}\nretrieval: {type: bm25}")
    report = json.loads(rag("evaluate", dataset, "--json", "--retriever", foreign))
    assert [notice.partition(":")[0] for notice in report["notices"]] == [
        "retriever.dense_method",
        "retriever.dense_params.dimension",
        "some documents are not searched",
    ]
    assert {"dense", "bm25", "fuse"} <= report["stages"].keys()
    report = json.loads(rag("evaluate", dataset, "--json", "--retriever", native))
    assert report["notices"] == []
    assert "fuse" not in report["stages"]
    assert "pass all other settings with --config" in rag("evaluate", dataset, "--json", "--retriever", other, code=2)


@pytest.mark.slow
def test_a_collection_with_other_documents_is_refused(rag: Any, dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("The sluice is inspected on Mondays.")
    rag("ingest", tmp_path / "docs", "--collection", "mixed")
    refused = json.loads(rag("evaluate", dataset, "--collection", "mixed", "--json", code=2))["error"]
    assert refused["type"] == "DatasetError"
    assert "besides the dataset" in refused["message"]


def test_a_malformed_dataset_is_a_usage_error(rag: Any, dataset: Path) -> None:
    (dataset / "queries.jsonl").write_text("{}\n")
    refused = json.loads(rag("evaluate", dataset, "--json", code=2))["error"]
    assert refused["message"] == f"{dataset}/queries.jsonl:1: '_id' must be a string that is not empty, got None"


def test_questions_that_cannot_be_asked_fail_the_evaluation(rag: Any, dataset: Path, monkeypatch: Any) -> None:
    def fail(*_: object, **_options: object) -> None:
        raise RagError("no model")

    monkeypatch.setattr("rag_core.knowledge_base.KnowledgeBase.explain", fail)
    refused = json.loads(rag("evaluate", dataset, "--json", code=1))["error"]
    assert refused["message"] == "no question could be answered: RagError: no model"


@pytest.mark.slow
def test_a_trained_fusion_is_a_valid_setting(rag: Any, dataset: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        app(["train-fusion", str(dataset), "--split", "test", "--json"])
    printed = capfd.readouterr()
    learned = json.loads(printed.out)
    assert ended.value.code == 0
    assert "trained on 12 of 13 questions" in printed.err
    assert (learned["type"], set(learned["scores"]), set(learned["ranks"])) == (
        "ltr",
        {"dense", "bm25"},
        {"dense", "bm25"},
    )
    report = json.loads(rag("evaluate", dataset, "--set", f"retrieval.fusion={json.dumps(learned)}", "--json"))
    assert report["stages"]["fuse"]["measures"]["success@5"]["mean"] == pytest.approx(12 / 13)


def test_the_fusion_below_a_reranker_is_trained_without_it(
    rag: Any, dataset: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    hybrid = load_settings(None, None, [], {}).retrieval.model_dump_json()
    reranker = "{type: cross_encoder, model: some/model-that-is-not-there}"
    tree = f"retrieval={{type: reranked, reranker: {reranker}, timeout_ms: 1, retriever: {hybrid}}}"
    with pytest.raises(SystemExit) as ended:
        app(["train-fusion", str(dataset), "--split", "test", "--set", tree, "--quiet"])
    printed = capfd.readouterr()
    assert ended.value.code == 0
    assert printed.out.startswith("fusion:\n  type: ltr\n  intercept: ")
    assert "trained on" not in printed.err


def test_an_actor_closes_its_knowledge_base_when_it_is_deleted(
    store: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[KnowledgeBase] = []
    close = KnowledgeBase.close
    monkeypatch.setattr(KnowledgeBase, "close", lambda knowledge: (closed.append(knowledge), close(knowledge)))
    settings = load_settings(overrides=[*HASHING, f"store.url={store.dsn}"], environment={})
    actor = RowActor(QuestionRows(TraceTask(settings=settings, collection=COLLECTION, k=20)))
    assert closed == []
    del actor
    assert len(closed) == 1


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
def test_actors_of_ray_answer_as_this_process_does(rag: Any, dataset: Path, store: Postgres) -> None:
    rag("evaluate", dataset, "--json")
    settings = load_settings(
        overrides=[*HASHING, f"retrieval.timeout_ms={PATIENT}", f"store.url={store.dsn}"], environment={}
    )
    task = TraceTask(settings=settings, collection=COLLECTION, k=20, callers=2)
    many = [
        Question(id=f"{n} {question.id}", text=question.text, grades={})
        for n in range(6)
        for question in read_dataset(dataset).questions
    ]
    inline, on_ray = (list(run_questions(task, many, runner)) for runner in (RunnerName.inline, RunnerName.ray))
    assert len(inline) == len(on_ray) == 78
    assert {trace.question: trace.ranking for trace in inline} == {trace.question: trace.ranking for trace in on_ray}
    assert {report.stage for trace in on_ray for report in trace.stages} >= {"embed", "dense", "bm25", "fuse"}


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
def test_the_command_measures_on_ray_what_it_measures_here(rag: Any, dataset: Path) -> None:
    on_ray = json.loads(rag("evaluate", dataset, "--runner", "ray", "--json"))
    inline = json.loads(rag("evaluate", dataset, "--runner", "inline", "--json"))
    assert on_ray["stages"]["final"]["measures"] == inline["stages"]["final"]["measures"]
    assert on_ray["failures"] == []


def list_asked_things(endpoint: Endpoint, first: int = 0) -> list[str]:
    """The things whose questions the generator received, in order."""
    prompts = [prompt[-1]["content"] for prompt in endpoint.prompts[first:]]
    return [thing for prompt in prompts for thing in THINGS if f"When is the {thing} inspected?" in prompt]


def read_finished_things(journal: Path) -> list[str]:
    """The things whose answers the journal has; a line can be cut."""
    lines = journal.read_text().split("\n")[1:-1] if journal.is_file() else []
    ids = [json.loads(line)["question"] for line in lines]
    return [thing for n, thing in enumerate(THINGS) if f"q {n}" in ids]


def use_generator(endpoint: Endpoint) -> Sequence[str]:
    """The options of a profile whose answers the endpoint writes."""
    model = f"model: llama, base_url: '{endpoint.url}', first_token_timeout_ms: 600000"
    generation = f"{{type: openai, {model}, fallback: none}}"
    return ("--set", f"generation={generation}", "--set", "answering.budget=none")


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
def test_answers_and_their_grades_on_ray_are_those_of_this_process(rag: Any, dataset: Path, tmp_path: Path) -> None:
    add_references(dataset)
    with run_endpoint(whole_response(GRADES)) as judge:
        options = ("--judge", judge.url, "--judge-model", "llama", "--json")
        on_ray, inline = (
            json.loads(rag("evaluate", dataset, *options, "--runner", runner, "--out", tmp_path / runner))["answers"]
            for runner in ("ray", "inline")
        )
    assert on_ray == inline
    assert inline["measures"]["rubric_faithfulness"]["mean"] == pytest.approx(0.75)
    rows = pq.read_table(tmp_path / "ray" / "answers.parquet").to_pylist()
    assert dict(rows[0]["reasons"])["rubric_relevance"] == "so"
    assert list((tmp_path / "ray").glob(JOURNALS)) == []


@pytest.mark.ray
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("ray_cluster")
def test_a_job_on_ray_that_was_killed_asks_no_question_twice(
    rag: Any, dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    monkeypatch.setenv("RAY_ADDRESS", ray.get_runtime_context().gcs_address)
    journal = tmp_path / "out" / "answers.partial.jsonl"
    rag("evaluate", dataset, "--runner", "inline", "--json")  # the job finds the corpus up to date
    with run_endpoint(*[ANSWER] * 5, ENDLESS) as endpoint:
        options = (str(dataset), "--answers", *use_generator(endpoint), "--json")
        out = ("--out", str(tmp_path / "out"), "--runner", "ray")
        entrypoint = [sys.executable, "-m", "jobs.evaluate"]  # the one of `ray job submit`
        with subprocess.Popen([*entrypoint, *options, *out]) as job:
            wait_until(lambda: bool(endpoint.requests) or job.poll() is not None, RAY_TIMEOUT)
            wait_until(lambda: len(read_finished_things(journal)) >= 4 or job.poll() is not None, RAY_TIMEOUT)
            job.kill()
        wait_until(lambda: endpoint.open_connections == 0, RAY_TIMEOUT)  # an actor outlives its job for a moment
        finished, count, endpoint.responses = read_finished_things(journal), len(endpoint.requests), [ANSWER]
        resumed = json.loads(rag("evaluate", *options, *out))
        remaining = list_asked_things(endpoint, count)
        undisturbed = json.loads(rag("evaluate", *options, "--runner", "inline"))
    assert len(finished) >= 4
    assert sorted(remaining) == sorted(set(THINGS) - set(finished))
    assert resumed["answers"] == undisturbed["answers"]
