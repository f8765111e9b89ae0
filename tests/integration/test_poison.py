"""A folder of files that mean harm: each costs one row with a true reason, and no other document anything."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import poison
import psutil
import pytest
from trees import broken, hashing, ingest, stored, write

from rag_core.build import ingestion
from rag_core.build.ingestion import inline_runner, preparation, source, sync
from rag_core.ingestion.report import Report
from rag_core.ingestion.sandbox import Bounds, Sandbox
from rag_core.ingestion.stages import Preparation
from rag_core.protocols import Source
from rag_core.storage.postgres import Postgres
from rag_core.types import Entry

pytestmark = pytest.mark.postgres

HEALTHY = {f"healthy-{number}.md": f"# Gate {number}\n\n{poison.STORY}\n" for number in range(10)}
BOUNDS = Bounds(seconds=2.0, memory_mb=200)
SECONDS = 90


@pytest.fixture(autouse=True)
def no_child_is_left() -> Iterator[None]:
    before = set(psutil.Process().children(recursive=True))
    yield
    ingestion._parse.cache_clear()
    assert [each for each in psutil.Process().children(recursive=True) if each not in before] == []


def reasons(store: Postgres) -> dict[str, tuple[str, str]]:
    held = stored(store)
    return {
        uri.rpartition("/")[2]: (document["status"], document["reason"] or "")
        for uri, document in held.documents.items()
    }


EXPECTED = {
    "truncated.pdf": ("failed", "damaged PDF"),
    "bomb.docx": ("failed", "too large: an archive entry compressed more than 200 times"),
    "entities.xml": ("failed", "damaged XML: Maximum entity amplification factor exceeded"),
    "entities.html": ("completed", ""),
    "empty.md": ("skipped", "empty"),
    "zip-in-disguise.md": ("skipped", "unsupported: .md"),
    "program.txt": ("quarantined", "a Linux program named .txt"),
    "one-line.txt": ("failed", "too large: 50.0 MB of text, limit 20 MB"),
    "nul.txt": ("skipped", "unsupported: .txt"),
    "late-nul.txt": ("completed", ""),
    "surrogates.txt": ("completed", ""),
    "damaged.md.gz": ("failed", "damaged gzip"),
    "new%0Aline.md": ("completed", ""),
    "caf%E9.md": ("completed", ""),
}


def test_every_poisoned_file_is_one_row_and_every_healthy_one_is_read(store: Postgres, tmp_path: Path) -> None:
    folder = poison.write_poison(tmp_path / "docs")
    write(folder, HEALTHY)
    began = time.monotonic()
    report = ingest(store, folder)
    assert time.monotonic() - began < SECONDS
    found = reasons(store)
    assert set(found) == set(EXPECTED) | set(HEALTHY)  # neither the pipe nor the loops
    for name, (status, reason) in EXPECTED.items():
        assert found[name][0] == status, (name, found[name])
        assert found[name][1].startswith(reason), (name, found[name])
    assert {found[name] for name in HEALTHY} == {("completed", "")}
    assert sum(report.documents[end] for end in ("completed", "failed", "skipped", "quarantined")) == len(found)


def test_the_names_of_poisoned_files_can_be_found_again(store: Postgres, tmp_path: Path) -> None:
    ingest(store, poison.write_poison(tmp_path / "docs"))
    held = stored(store)
    for name in ("new%0Aline.md", "caf%E9.md"):
        assert poison.STORY in "".join(held.texts(name))
    assert "\0" not in "".join(held.texts("late-nul.txt"))


def run(store: Postgres, folder: Path, changed_source: Source | None = None) -> Report:
    """With the parser that does what a file's name says, in a sandbox of its own."""
    settings = hashing()
    sandbox = Sandbox(poison.treacherous, BOUNDS)

    def prepared(sources: dict[int, Source]) -> Preparation:
        made = preparation(settings, sources)
        made._parse = sandbox
        return made

    job = sync(settings, store, [str(folder)])
    if changed_source:
        job = replace(job, sources=[changed_source])
    runner = replace(inline_runner(settings), preparation=prepared)
    try:
        report = job.run(runner)
    finally:
        sandbox.close()
    assert broken(store) == []
    return report


def test_parsers_that_hang_crash_or_take_all_memory_cost_their_documents_only(store: Postgres, tmp_path: Path) -> None:
    acts = ("spin", "wait_in_c", "hog", "crash", "abort", "leave", "stumble", "fork_and_spin")
    folder = write(tmp_path / "docs", HEALTHY | {f"{name}.txt": name for name in acts})
    began = time.monotonic()
    report = run(store, folder)
    assert time.monotonic() - began < SECONDS
    found = reasons(store)
    assert {name: found[f"{name}.txt"] for name in acts} == {
        "spin": ("failed", "took longer than 2 s"),
        "wait_in_c": ("failed", "took longer than 2 s"),
        "hog": ("failed", "needed more than 200 MB of memory"),
        "crash": ("failed", "the parser crashed (signal SIGSEGV)"),
        "abort": ("failed", "needed more than 200 MB of memory"),
        "leave": ("failed", "the parser ended without an answer (exit status 3)"),
        "stumble": ("failed", "the parser failed: KeyError: 'a bug'"),
        "fork_and_spin": ("failed", "took longer than 2 s"),
    }
    assert {found[name] for name in HEALTHY} == {("completed", "")}
    assert (report.documents["completed"], report.documents["failed"]) == (len(HEALTHY), len(acts))


class ChangingSource:
    """A file of it is written to while it is read: what was listed is no longer what is there."""

    def __init__(self, inner: Source, path: Path) -> None:
        self._inner, self._path, self.uri = inner, path, inner.uri

    def listing(self) -> Iterator[Entry]:
        return self._inner.listing()

    def read(self, entry: Entry) -> bytes:
        if entry.uri.endswith("/" + self._path.name):
            self._path.write_text(f"# Changed\n\n{poison.STORY}\n")
        return self._inner.read(entry)


def test_a_file_that_changes_while_it_is_read_is_as_it_was_read_and_read_again(store: Postgres, tmp_path: Path) -> None:
    folder = write(tmp_path / "docs", HEALTHY)
    changing = ChangingSource(source(hashing(), str(folder)), folder / "healthy-3.md")
    assert run(store, folder, changing).documents["completed"] == len(HEALTHY)
    assert stored(store).documents[stored(store).uri("healthy-3.md")]["title"] == "Changed"
    assert run(store, folder).documents["failed"] == 0


def test_without_the_sandbox_no_child_is_started(store: Postgres, tmp_path: Path) -> None:
    before = psutil.Process().children()
    report = ingest(store, write(tmp_path / "docs", HEALTHY), settings=hashing("parsing.sandbox=false"))
    assert report.documents["completed"] == len(HEALTHY)
    assert psutil.Process().children() == before


def test_one_child_serves_the_jobs_of_a_process(store: Postgres, tmp_path: Path) -> None:
    before = set(psutil.Process().children())
    ingest(store, write(tmp_path / "docs", HEALTHY))
    first = set(psutil.Process().children()) - before
    ingest(store, write(tmp_path / "more", {"other.md": f"# Other\n\n{poison.STORY}\n"}), collection="other")
    assert set(psutil.Process().children()) - before == first
    assert len(first) == 1
