import json
from pathlib import Path
from typing import Any

import pytest
from commands import Rag, rag_in_process
from trees import write

from rag_core.storage.postgres import Postgres

pytestmark = pytest.mark.postgres


STORY = "# Keys\n\nThe keys are new. They are kept in a box. The box is red. Nobody opens it. It stands in the hall."
OPTIONS = {
    "RAG_EMBEDDING__TYPE": "hashing",
    "RAG_EMBEDDING__DIMENSION": "64",
    "RAG_CHUNKING__TOKENS": "16",
    "RAG_CHUNKING__OVERLAP": "0",
    "RAG_CHUNKING__PREFIX_TOKENS": "8",
}


@pytest.fixture
def run(store: Postgres, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Rag:
    for name, value in {**OPTIONS, "RAG_STORE__URL": store.dsn}.items():
        monkeypatch.setenv(name, value)
    return rag_in_process(capfd)


def rag(run: Rag, *arguments: str, code: int = 0) -> Any:
    return json.loads(output_of(run, *arguments, "--json", code=code))


def output_of(run: Rag, *arguments: str, code: int = 0) -> str:
    ran = run(*arguments)
    assert ran.code == code, ran.err
    return ran.out


def test_a_hit_is_shown_with_the_chunks_around_it(run: Rag, tmp_path: Path) -> None:
    folder = write(tmp_path, {"keys.md": STORY})
    rag(run, "ingest", str(folder), "--runner", "inline")
    [best, *_] = rag(run, "search", "Nobody opens it", "-k", "1", "--context", "1")["results"]
    before, after = best["context"]["before"], best["context"]["after"]
    assert " ".join(f"{before} {best['text']} {after}".split()).endswith(STORY[STORY.index("They") :])
    [plain, *_] = rag(run, "search", "Nobody opens it", "-k", "1")["results"]
    assert "context" not in plain


def test_the_context_is_printed_around_the_passage(run: Rag, tmp_path: Path) -> None:
    rag(run, "ingest", str(write(tmp_path, {"keys.md": STORY})), "--runner", "inline")
    output = output_of(run, "search", "The box is red", "-k", "1", "--context", "9")
    assert " ".join(STORY.removeprefix("# Keys").split()) in " ".join(output.split())


def test_meta_is_metadata_of_all_documents(run: Rag, tmp_path: Path) -> None:
    rag(run, "ingest", str(write(tmp_path, {"keys.md": STORY})), "--runner", "inline", "--meta", "kind=story")
    only = '{"key": "kind", "type": "eq", "value": "%s"}'
    assert rag(run, "search", "keys", "--filter", only % "story")["results"]
    assert not rag(run, "search", "keys", "--filter", only % "memo")["results"]


@pytest.mark.parametrize(
    ("arguments", "profile"),
    [
        ([], "default"),
        (["--meta", "source=acme"], "acme"),
        (["--meta", "source=acme", "--profile", "default"], "default"),
    ],
)
def test_the_profile_of_a_source_is_detected_unless_it_is_named(
    run: Rag, tmp_path: Path, arguments: list[str], profile: str
) -> None:
    folder = write(tmp_path / "docs", {"keys.md": STORY})
    (tmp_path / "rag.yaml").write_text("profiles: {acme: {detect: {source: [acme]}, chunking: {overlap: 4}}}")
    named = ["--config", str(tmp_path / "rag.yaml"), *arguments]
    rag(run, "ingest", str(folder), "--runner", "inline", *named)
    [job] = rag(run, "jobs", "list")
    assert job["profile"] == profile


def test_meta_without_a_value_is_refused(run: Rag, tmp_path: Path) -> None:
    folder = write(tmp_path, {"keys.md": STORY})
    error = rag(run, "ingest", str(folder), "--meta", "source", code=2)["error"]
    assert error["message"] == "--meta must be KEY=VALUE with a key without dots, got 'source'"
