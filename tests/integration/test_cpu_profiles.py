"""The CPU variants of the shipped profiles, from a small collection of their kind to an explained search."""

from pathlib import Path
from typing import Any

import pytest
from biomedical import QUESTIONS, WRITERS
from commands import Rag, rag_in_process

from rag_core.storage.postgres import Postgres

pytestmark = [pytest.mark.postgres, pytest.mark.model, pytest.mark.slow]

STAGES = {
    "pmc": {"dense", "splade"},
    "dailymed": {"dense", "bm25", "rerank"},
    "clinicaltrials": {"dense", "bm25", "splade", "rerank"},
}
"""The stages that give a hit its scores."""


@pytest.fixture
def run(store: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Rag:
    for name, value in {"RAG_STORE__URL": store.dsn, "RAG_HOME": str(tmp_path / "home")}.items():
        monkeypatch.setenv(name, value)
    return rag_in_process(capfd)


def answer(run: Rag, *arguments: object) -> Any:
    ran = run(*arguments, "--json")
    assert ran.code == 0, ran.err
    return ran.json


def best_document(hit: Any) -> str:
    return str(hit["url"].rpartition("/")[2].partition(".")[0])


@pytest.mark.parametrize("profile", WRITERS)
def test_a_collection_of_its_kind_is_ingested_searched_and_explained(run: Rag, tmp_path: Path, profile: str) -> None:
    folder = WRITERS[profile](tmp_path / "docs")
    named = ("--profile", f"{profile}-cpu")
    report = answer(run, "ingest", folder, "--runner", "inline", *named)
    assert (report["documents"]["completed"], report["failures"]) == (4, [])
    question, document = QUESTIONS[profile]
    response = answer(run, "search", question, "-k", "3", "--explain", *named)
    best = response["results"][0]
    assert best_document(best) == document
    assert set(best["explain"]) == STAGES[profile] | {"fusion"}
    skipped = {stage["stage"] for stage in response["stages"] if stage["skipped"]}
    assert skipped == ({"rerank", "bm25"} if profile == "pmc" else set())


def test_each_kind_is_detected_in_one_mixed_folder(run: Rag, tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    for write in WRITERS.values():
        write(folder)
    (folder / "notes.md").write_text("# Notes\n\nThe archive is open on Mondays.")
    report = answer(run, "ingest", folder, "--runner", "inline")
    assert (report["documents"]["completed"], report["failures"]) == (13, [])
    assert report["notices"] == [
        f"documents that match profile {profile}-cpu: 4, split by its chunker" for profile in sorted(WRITERS)
    ]
    for question, document in QUESTIONS.values():
        response = answer(run, "search", question, "-k", "3", "--explain")
        assert best_document(response["results"][0]) == document
    assert answer(run, "ingest", folder, "--runner", "inline")["documents"]["same"] == 13


@pytest.mark.parametrize("profile", WRITERS)
def test_the_name_of_a_folder_selects_the_variant_and_says_what_differs(
    run: Rag, tmp_path: Path, profile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rag_core.wiring.profile_choice.has_cuda_gpu", lambda: False)
    ran = run("ingest", WRITERS[profile](tmp_path / profile), "--runner", "inline")
    assert ran.code == 0, ran.err
    assert f"using profile {profile}-cpu instead of {profile}, which was detected from the sources: no GPU" in ran.err
    assert (
        f"profile {profile}-cpu replaces {profile} on machines without a GPU: chunks have at most 200 tokens" in ran.err
    )
    [job] = answer(run, "jobs", "list")
    assert job["profile"] == f"{profile}-cpu"
