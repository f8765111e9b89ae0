"""Profiles that are detected: for sources, and for single documents by what they are."""

import logging
import sys
from pathlib import Path
from typing import Any

import gateways
import pytest
from commands import Rag, rag_in_process
from drafts import TENANT
from gateways import build_services
from trees import read_tree, violations, write
from workers import run_worker

from rag_core.knowledge_base import open_knowledge_base
from rag_core.storage.postgres import Postgres
from serve.authentication.caller import Caller
from serve.gateway_settings import SettingsSource, load_gateway_settings

pytestmark = pytest.mark.postgres

ARTICLE = """<article><front><article-meta><title-group><article-title>Platelets</article-title></title-group>
</article-meta></front><body><sec><title>Methods</title><p>Platelets were counted daily.</p></sec></body></article>"""
MIXED = {
    "article.xml": ARTICLE,
    "amoxil.md": "---\nsource: DailyMed\n---\n# Amoxil\n\nTake 500 mg every 8 hours.",
    "NCT01234567.md": "# Naps\n\nAdults from 18 years who nap.",
    "notes.md": "# Notes\n\nNothing of the kind.",
}
DETECTED = [
    f"documents that match profile {name}: 1, split by its chunker"
    for name in ("clinicaltrials", "dailymed", "pmc-cpu")
]
"""Texts of 450 tokens fit the window of the hashing embedder, texts of 650 do not."""
CONFIGURATION = """
embedding: {type: hashing, dimension: 64}
chunking: {tokens: 16, overlap: 0, prefix_tokens: 8}
profiles:
  memos: {detect: {kind: [memo]}, chunking: {tokens: %d}}
  wide: {detect: {kind: [wide], source: [wide]}, embedding: {dimension: 128}}
  gpu-only:
    detect: {source: [acme]}
    without_gpu: laptop
    embedding: {type: bert, model: there/is-none, device: cuda}
  laptop: {chunking: {tokens: 20}}
"""
STORY = "# Keys\n\nThe keys are new. They are kept in a box. The box is red. Nobody opens it. It stands in the hall."
KINDS = {kind: f"---\nkind: {kind}\n---\n{STORY}" for kind in ("memo", "wide", "other")}


@pytest.fixture
def run(store: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Rag:
    for name, value in {"RAG_STORE__URL": store.dsn, "RAG_HOME": str(tmp_path / "home")}.items():
        monkeypatch.setenv(name, value)
    return rag_in_process(capfd)


@pytest.fixture
def hashing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAG_EMBEDDING__TYPE", "hashing")


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    return configure(tmp_path, tokens=60)


def configure(folder: Path, tokens: int) -> Path:
    file = folder / "rag.yaml"
    file.write_text(CONFIGURATION % tokens)
    return file


def ingest(run: Rag, folder: Path, *arguments: object) -> Any:
    ran = run("ingest", folder, "--runner", "inline", "--json", *arguments)
    assert ran.code == 0, ran.err
    return ran.json


def count_changes(report: Any) -> tuple[int, int]:
    return report["documents"]["changed"], report["documents"]["same"]


@pytest.mark.usefixtures("hashing")
def test_each_document_of_a_mixed_folder_is_split_by_the_profile_that_suits_it(
    run: Rag, store: Postgres, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write(tmp_path / "docs", MIXED)
    with caplog.at_level(logging.INFO, "rag_core.ingestion.sync"):
        assert ingest(run, folder)["notices"] == DETECTED
    assert [record.getMessage() for record in caplog.records] == DETECTED
    assert ingest(run, folder)["documents"]["same"] == 4
    assert violations(store) == []


@pytest.mark.usefixtures("hashing")
def test_a_named_profile_applies_to_every_document(run: Rag, tmp_path: Path) -> None:
    report = ingest(run, write(tmp_path / "docs", MIXED), "--profile", "default")
    assert report["notices"] == []


@pytest.mark.usefixtures("hashing")
def test_scripts_detect_as_the_command_does(store: Postgres, tmp_path: Path) -> None:
    with open_knowledge_base(store.dsn) as knowledge:
        assert list(knowledge.ingest(write(tmp_path / "docs", MIXED)).notices) == DETECTED


@pytest.mark.slow
@pytest.mark.usefixtures("hashing")
def test_documents_that_are_sent_without_a_profile_are_detected_too(store: Postgres) -> None:
    overrides = (f"tenant={TENANT}", f"store.url={store.dsn}", "store.patience_s=5")
    settings = load_gateway_settings(SettingsSource(set=overrides))
    label = {"id": "a", "text": "Take 500 mg every 8 hours.", "metadata": {"source": "dailymed"}}
    article = {"id": "b.nxml", "text": ARTICLE}

    async def send(client: Any) -> Any:
        body = {"documents": [label, article]}
        return await client.post("/v1/ingest", json=body, headers={"Prefer": "wait=60"})

    with run_worker(settings.own):
        response = gateways.run_with_gateway(
            build_services(settings.own), send, Caller(tenant=TENANT), settings.others, settings.detection
        )
    assert response.status_code == 200, response.text
    assert labels(store) == ["dailymed", "pmc-cpu"]


def labels(store: Postgres) -> list[str]:
    with store.connect("rag_worker") as connection:
        rows = connection.execute("select recipe from documents order by uri").fetchall()
    return [recipe.partition("|")[0].partition(" ")[2].partition(":")[0] for (recipe,) in rows]


def test_a_changed_profile_redoes_its_own_documents_and_no_others(run: Rag, tmp_path: Path) -> None:
    folder = write(tmp_path / "docs", {f"{kind}.md": text for kind, text in KINDS.items()})
    ingest(run, folder, "--config", configure(tmp_path, tokens=24))
    assert count_changes(ingest(run, folder, "--config", configure(tmp_path, tokens=24))) == (0, 3)
    assert count_changes(ingest(run, folder, "--config", configure(tmp_path, tokens=17))) == (1, 2)


def test_a_profile_that_nobody_detects_any_more_gives_its_documents_back(
    run: Rag, store: Postgres, tmp_path: Path
) -> None:
    folder = write(tmp_path / "docs", {f"{kind}.md": text for kind, text in KINDS.items()})
    ingest(run, folder, "--config", configure(tmp_path, tokens=24))
    assert labels(store) == ["memos", "", "wide"]
    settings = (
        "--set",
        "embedding={type: hashing, dimension: 64}",
        "--set",
        "chunking={tokens: 16, overlap: 0, prefix_tokens: 8}",
    )
    assert count_changes(ingest(run, folder, "--profile", "default", *settings)) == (2, 1)
    assert labels(store) == ["", "", ""]


def test_a_document_whose_profile_needs_another_model_is_split_like_the_others_and_counted(
    run: Rag, store: Postgres, tmp_path: Path, configuration: Path
) -> None:
    folder = write(tmp_path / "docs", {f"{kind}.md": text for kind, text in KINDS.items()})
    assert ingest(run, folder, "--config", configuration)["notices"] == [
        "documents that match profile memos: 1, split by its chunker",
        "documents that match profile wide: 1, split by that of all others: it needs another embedding model",
    ]
    chunks = {uri.rpartition("/")[2]: len(rows) for uri, rows in read_tree(store).chunks.items()}
    assert chunks["wide.md"] == chunks["other.md"] > chunks["memo.md"]


def test_without_a_gpu_a_detected_profile_is_replaced_and_a_named_one_is_not(
    run: Rag, tmp_path: Path, configuration: Path
) -> None:
    folder = write(tmp_path / "docs", {"keys.md": STORY})
    arguments = ("ingest", folder, "--runner", "inline", "--config", configuration)
    ran = run(*arguments, "--meta", "source=acme")
    assert ran.code == 0, ran.err
    assert "using profile laptop instead of gpu-only, which was detected from the sources: " in ran.err
    assert (
        "profile laptop replaces gpu-only on machines without a GPU: chunks have at most 20 tokens instead of 16"
        in ran.err
    )
    named = run(*arguments, "--profile", "gpu-only")
    assert (named.code, "; without a GPU or a model hub, use --profile laptop" in named.err) == (3, True)


def test_an_invalid_pattern_does_not_hide_that_a_model_is_missing(run: Rag, tmp_path: Path) -> None:
    file = tmp_path / "rag.yaml"
    file.write_text("profiles: {mine: {embedding: {type: bert, model: /nowhere}, detect: {source: 3}}}")
    ran = run("search", "keys", "--config", file, "--profile", "mine")
    assert (ran.code, ran.err.startswith("error: model /nowhere is not a folder")) == (3, True)


def test_a_collection_keeps_its_model_when_a_source_shows_another_profile(
    run: Rag, tmp_path: Path, configuration: Path
) -> None:
    first, second = (write(tmp_path / name, {f"{name}.md": STORY}) for name in ("first", "second"))
    ingest(run, first, "--config", configuration)
    ran = run("ingest", second, "--runner", "inline", "--config", configuration, "--meta", "source=wide")
    assert ran.code == 0, ran.err
    assert (
        "using profile default, that of collection default; wide, detected from the sources, needs another model; "
        "pass --profile default" in ran.err
    )


@pytest.mark.slow
@pytest.mark.usefixtures("hashing")
def test_an_unchanged_folder_imports_no_torch(run: Rag, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "pmc", MIXED)
    ingest(run, folder)
    for name in [name for name in sys.modules if name.partition(".")[0] == "torch"]:
        monkeypatch.delitem(sys.modules, name)
    assert ingest(run, folder)["documents"]["same"] == 4
    assert "torch" not in sys.modules
