"""`rag ingest --every` as a process, and a sync that SIGTERM stops between two groups of documents."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from fakes.serving import serve_profiles
from trees import hashing_settings, read_tree, violations, write
from workers import run_worker

from rag_cli.termination import stop_on_sigterm
from rag_core.errors import StoppedError
from rag_core.protocols import Source
from rag_core.storage.ledger import Ledger
from rag_core.storage.postgres import Postgres
from rag_core.types import DEFAULT_TENANT, Entry
from rag_core.wiring.ingestion import build_inline_runner, build_sync
from serve.profiles import ServedProfiles
from serve.services import open_shared_resources

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

FILES = {f"{number}.md": f"# Part {number}\n\nThe keys of part {number} are replaced.\n" for number in range(6)}
LIMIT = 120.0
"""Seconds that a process can take to end."""


@dataclass(frozen=True)
class TerminatedMidway:
    """A source whose process receives SIGTERM when the third document is read."""

    inner: Source

    @property
    def uri(self) -> str:
        return self.inner.uri

    def listing(self) -> list[Entry]:
        return list(self.inner.listing())

    def read(self, entry: Entry) -> bytes:
        if entry.uri.endswith("/2.md"):
            os.kill(os.getpid(), signal.SIGTERM)
        return self.inner.read(entry)


def test_sigterm_keeps_the_published_groups_and_the_next_sync_continues(store: Postgres, tmp_path: Path) -> None:
    settings = hashing_settings("ingestion.group=1", "parsing.sandbox=false")
    sync = build_sync(settings, store, [str(write(tmp_path / "docs", FILES))])
    terminated = replace(sync, sources=[TerminatedMidway(sync.sources[0])])
    with stop_on_sigterm() as check, pytest.raises(StoppedError):
        replace(terminated, check=check).run(build_inline_runner(settings))
    with store.connect() as connection:
        (job,) = Ledger(connection, DEFAULT_TENANT).jobs()
    assert (job["status"], job["reason"]) == ("cancelled", "interrupted")
    published = len(read_tree(store).documents)
    assert 0 < published < 6
    assert sync.run(build_inline_runner(settings)).documents["completed"] == 6 - published
    assert len(read_tree(store).documents) == 6
    assert violations(store) == []


def start(folder: Path, *options: str, **environment: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "rag_cli", "ingest", str(folder), "--every", "1s", "--json", "--quiet", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})


def read_runs(process: "subprocess.Popen[str]", count: int) -> Iterator[dict[str, Any]]:
    assert process.stdout
    for _ in range(count):
        yield json.loads(process.stdout.readline())


def test_a_folder_is_synced_again_until_sigterm(store: Postgres, tmp_path: Path) -> None:
    folder = write(tmp_path / "docs", {"1.md": FILES["1.md"]})
    options = ("--set", "embedding.type=hashing", "--set", "parsing.sandbox=false")
    with start(folder, *options, RAG_STORE__URL=store.dsn) as process:
        (first,) = read_runs(process, 1)
        write(folder, {"2.md": FILES["2.md"]})
        while not (last := next(read_runs(process, 1)))["documents"]["completed"]:
            pass
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT) == 0
    assert (first["documents"]["added"], last["documents"]["added"]) == (1, 1)
    assert len(read_tree(store).documents) == 2
    assert violations(store) == []


def test_a_folder_is_sent_to_a_server_again_until_sigterm(store: Postgres, tmp_path: Path) -> None:
    folder = write(tmp_path / "docs", {"1.md": FILES["1.md"]})
    settings = hashing_settings(f"store.url={store.dsn}", "parsing.sandbox=false")
    services = open_shared_resources(settings).build_services(settings)
    with (
        serve_profiles(ServedProfiles(services)) as url,
        run_worker(settings),
        start(folder, "--server", url) as process,
    ):
        first, second = read_runs(process, 2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT) == 0
    assert [run["documents"].get("added") for run in (first, second)] == [1, 0]
