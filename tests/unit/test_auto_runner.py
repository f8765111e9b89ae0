from typing import NamedTuple

import pytest

from jobs.ingest import AutoRunner, RunnerName
from jobs.ray_connection import UNLIMITED, Resources
from rag_core.settings import load_settings
from rag_core.wiring import ingestion


class Entry(NamedTuple):
    size: int


class Waiting(NamedTuple):
    entry: Entry


SETTINGS = load_settings(environment={})
INLINE, RAY = RunnerName.inline, RunnerName.ray


def waiting(documents: int, size: int = 1_000) -> list[Waiting]:
    return [Waiting(Entry(size))] * documents


def choose(documents: list[Waiting], resources: Resources = UNLIMITED) -> tuple[RunnerName, str]:
    return AutoRunner(SETTINGS, resources).choose(documents)


@pytest.fixture(autouse=True)
def host_with_8_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ingestion, "count_cpus", lambda: 8)


def test_a_large_host_starts_ray_for_many_documents() -> None:
    assert choose(waiting(9_999))[0] is INLINE
    assert choose(waiting(10_000)) == (RAY, "8 CPUs and 10000 documents with 10.0 MB")
    assert choose(waiting(10, size=3_200_000))[0] is RAY


def test_a_small_host_never_starts_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingestion, "count_cpus", lambda: 7)
    assert choose(waiting(1_000_000)) == (INLINE, "7 CPUs, less than ingestion.ray_from_cpus (8)")


def test_a_cluster_takes_smaller_jobs_whatever_this_host_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    monkeypatch.setattr(ingestion, "count_cpus", lambda: 1)
    assert choose(waiting(63)) == (INLINE, "63 documents with 0.1 MB are too few for a cluster")
    assert choose(waiting(64)) == (RAY, "RAY_ADDRESS is set, and 64 documents with 0.1 MB are enough for a cluster")
    assert choose(waiting(10, size=100_000))[0] is RAY


@pytest.mark.parametrize("resources", [Resources(gpus=1), Resources(cpus=1), Resources(actors=1)])
def test_named_resources_are_never_ignored(resources: Resources) -> None:
    assert choose(waiting(1), resources) == (RAY, "--cpus, --gpus or --concurrency was given")


def test_the_choice_is_reported_before_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []

    class Runner:
        def run(self, *work: object) -> str:
            return f"{len(work)} arguments after {lines}"

    monkeypatch.setattr("jobs.ingest.build_runner", lambda *_: Runner())
    line = (
        "in this process: 1 documents with 0.0 MB, less than ingestion.inline_documents and inline_mb (10000 and 32 MB)"
    )
    result = AutoRunner(SETTINGS, UNLIMITED, lines.append).run("target", {}, waiting(1), lambda: None)
    assert result == f"4 arguments after {[line]}"
