"""A folder of harmful files: each costs one row with its true reason, and affects no other document."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import poison
import psutil
import pytest
from trees import hashing_settings, ingest, read_tree, violations, write

from rag_core.ingestion.report import SyncReport
from rag_core.ingestion.stages import Preparation
from rag_core.parsing.sandbox import Sandbox, SandboxLimits
from rag_core.protocols import Source
from rag_core.storage.postgres import Postgres
from rag_core.types import Entry
from rag_core.wiring import parsing
from rag_core.wiring.ingestion import build_inline_runner, build_preparation, build_sync, open_files_source

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(120)]

HEALTHY = {f"healthy-{number}.md": f"# Gate {number}\n\n{poison.STORY}\n" for number in range(10)}
BOUNDS = SandboxLimits(seconds=2.0, memory_mb=200)


@pytest.fixture(autouse=True)
def no_child_is_left() -> Iterator[None]:
    before = set(psutil.Process().children(recursive=True))
    yield
    parsing.open_parser.cache_clear()
    assert [process for process in psutil.Process().children(recursive=True) if process not in before] == []
    assert poison.sleep(os.getpid()) not in [process.info["cmdline"] for process in psutil.process_iter(["cmdline"])]


def reasons(store: Postgres) -> dict[str, tuple[str, str]]:
    stored = read_tree(store)
    return {
        uri.rpartition("/")[2]: (document["status"], document["reason"] or "")
        for uri, document in stored.documents.items()
    }


EXPECTED = {
    "truncated.pdf": ("failed", "damaged PDF"),
    "ten-thousand-pages.pdf": ("failed", "too large: 10000 pages, limit 5000"),
    "pdf-in-disguise.docx": ("completed", ""),
    "bomb.docx": ("failed", "too large: an archive entry compressed more than 200 times"),
    "entities.xml": ("failed", "damaged XML: Maximum entity amplification factor exceeded"),
    "entities.html": ("completed", ""),
    "empty.md": ("skipped", "empty"),
    "zip-in-disguise.md": ("skipped", "unsupported: a ZIP archive named .md"),
    "program.txt": ("quarantined", "a Linux program named .txt"),
    "one-line.txt": ("failed", "too large: 50.0 MB of text, limit 20 MB"),
    "nul.txt": ("skipped", "unsupported: binary content named .txt"),
    "late-nul.txt": ("completed", ""),
    "escapes.json": ("completed", ""),
    "surrogates.txt": ("completed", ""),
    "damaged.md.gz": ("failed", "damaged gzip"),
    "new%0Aline.md": ("completed", ""),
    "caf%E9.md": ("completed", ""),
    "nul-inside.epub": ("failed", "damaged archive: no a\ufffd.opf"),
    "from-2300.md": ("completed", ""),
    "from-1600.md": ("completed", ""),
    "loop.md": ("skipped", "a symbolic link that refers to itself"),
    "pipe.md": ("skipped", "not a regular file"),
}


@pytest.mark.slow
def test_every_poisoned_file_is_one_row_and_every_healthy_one_is_read(store: Postgres, tmp_path: Path) -> None:
    folder = poison.write_poison(tmp_path / "docs")
    write(folder, HEALTHY)
    report = ingest(store, folder)
    outcomes = reasons(store)
    assert set(outcomes) == set(EXPECTED) | set(HEALTHY)  # and nothing twice through the link to the folder
    for name, (status, reason) in EXPECTED.items():
        assert outcomes[name][0] == status, (name, outcomes[name])
        assert outcomes[name][1].startswith(reason), (name, outcomes[name])
    assert {outcomes[name] for name in HEALTHY} == {("completed", "")}
    assert sum(report.documents[end] for end in ("completed", "failed", "skipped", "quarantined")) == len(outcomes)
    stored = read_tree(store)
    for name in ("new%0Aline.md", "caf%E9.md", "pdf-in-disguise.docx"):
        assert poison.STORY in "".join(stored.texts(name))
    assert "\0" not in "".join(stored.texts("late-nul.txt"))
    assert stored.texts("escapes.json") == ["- story: A NUL  and a lone surrogate ."]


def run(store: Postgres, folder: Path, changed_source: Source | None = None) -> SyncReport:
    """Syncs with the parser that does what a file's name says, in a separate sandbox."""
    settings = hashing_settings()
    sandbox = Sandbox(poison.parse_or_act, BOUNDS)

    def build_patched_preparation(sources: Mapping[int, Source]) -> Preparation:
        preparation = build_preparation(settings, sources)
        preparation._parse = lambda _, uri, body: sandbox(uri, body)
        return preparation

    job = build_sync(settings, store, [str(folder)])
    if changed_source:
        job = replace(job, sources=[changed_source])
    runner = replace(build_inline_runner(settings), build_preparation=build_patched_preparation)
    try:
        report = job.run(runner)
    finally:
        sandbox.close()
    assert violations(store) == []
    return report


@pytest.mark.slow
def test_parsers_that_hang_crash_or_take_all_memory_cost_their_documents_only(store: Postgres, tmp_path: Path) -> None:
    acts = ("spin", "wait_in_c", "hog", "crash", "abort", "leave", "stumble", "fork_and_spin")
    folder = write(tmp_path / "docs", HEALTHY | {f"{name}.txt": name for name in acts})
    report = run(store, folder)
    outcomes = reasons(store)
    assert {name: outcomes[f"{name}.txt"] for name in acts} == {
        "spin": ("failed", "took longer than 2 s of CPU time"),
        "wait_in_c": ("failed", "gave no answer within 20 s"),
        "hog": ("failed", "needed more than 200 MB of memory"),
        "crash": ("failed", "the parser crashed (signal SIGSEGV)"),
        "abort": ("failed", "needed more than 200 MB of memory"),
        "leave": ("failed", "the parser ended without an answer (exit status 3)"),
        "stumble": ("failed", "the parser failed: KeyError: 'a bug'"),
        "fork_and_spin": ("failed", "took longer than 2 s of CPU time"),
    }
    assert {outcomes[name] for name in HEALTHY} == {("completed", "")}
    assert (report.documents["completed"], report.documents["failed"]) == (len(HEALTHY), len(acts))


class ChangingSource:
    """A source whose file grows: a half is written after the listing, the other half after the first has been read."""

    def __init__(self, inner: Source, path: Path) -> None:
        self._inner, self._path, self.uri = inner, path, inner.uri

    def listing(self) -> Iterator[Entry]:
        return self._inner.listing()

    def read(self, entry: Entry) -> bytes:
        if not entry.uri.endswith("/" + self._path.name):
            return self._inner.read(entry)
        self._path.write_text("# Changed\n\nThe first half.\n")
        body = self._inner.read(entry)
        self._path.write_text("# Changed\n\nThe first half.\n\nThe other half.\n")
        return body


def test_a_file_that_changes_while_it_is_read_is_as_it_was_read_and_read_again(store: Postgres, tmp_path: Path) -> None:
    folder = write(tmp_path / "docs", HEALTHY)
    changing = ChangingSource(open_files_source(hashing_settings(), str(folder)), folder / "healthy-3.md")
    assert run(store, folder, changing).documents["completed"] == len(HEALTHY)
    assert read_tree(store).texts("healthy-3.md") == ["# Changed\n\nThe first half."]
    assert run(store, folder).documents["changed"] == 1
    assert read_tree(store).texts("healthy-3.md") == ["# Changed\n\nThe first half.\n\nThe other half."]


def test_without_the_sandbox_no_child_is_started(store: Postgres, tmp_path: Path) -> None:
    before = set(psutil.Process().children())
    report = ingest(store, write(tmp_path / "docs", HEALTHY), settings=hashing_settings("parsing.sandbox=false"))
    assert report.documents["completed"] == len(HEALTHY)
    assert set(psutil.Process().children()) <= before


def test_one_child_serves_the_jobs_of_a_process(store: Postgres, tmp_path: Path) -> None:
    before = set(psutil.Process().children())
    ingest(store, write(tmp_path / "docs", HEALTHY))
    first = set(psutil.Process().children()) - before
    ingest(store, write(tmp_path / "more", {"other.md": f"# Other\n\n{poison.STORY}\n"}), collection="other")
    assert set(psutil.Process().children()) - before == first
    assert len(first) == 1
