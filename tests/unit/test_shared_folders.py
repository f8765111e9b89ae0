"""Local folders on a cluster: accepted if every node that runs tasks sees the same files."""

import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from jobs import shared_folders
from jobs.cluster_nodes import Answer, Node
from jobs.shared_folders import check_folders
from jobs.source_samples import Sample, is_local, take_sample
from rag_core.errors import UnsharedFolderError
from rag_core.protocols import Source
from rag_core.settings import load_settings
from rag_core.wiring.ingestion import open_source

WORKER, OTHER, HEAD = (
    Node(id=name * 56, address=f"10.0.0.{number}", host="h", cpus=cpus, gpus=0, metrics_port=1)
    for number, (name, cpus) in enumerate([("a", 4), ("b", 4), ("c", 0)], start=1)
)


def open_folder(location: object) -> Source:
    return open_source(load_settings(environment={}), str(location))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    for name in ("a.md", "b.md"):
        (folder / name).write_text("# Gate\n")
    with zipfile.ZipFile(folder / "c.zip", "w") as container:
        container.writestr("inside.md", "# Gate\n")
    return folder


def script_answers(monkeypatch: pytest.MonkeyPatch, *rounds: dict[Node, Any]) -> list[Sequence[Node]]:
    """Makes the nodes answer with these samples or errors, round by round. Returns the nodes that were asked."""
    probes: list[Sequence[Node]] = []
    remaining = iter(rounds)

    def run_on_nodes(_function: Any, _arguments: Any, nodes: Sequence[Node]) -> list[Answer]:
        probes.append(nodes)
        values = next(remaining)
        return [
            Answer(node, error=value) if isinstance(value, str) else Answer(node, value)
            for node, value in values.items()
        ]

    monkeypatch.setattr(shared_folders, "run_on_nodes", run_on_nodes)
    return probes


def test_a_sample_has_names_sizes_and_times_including_those_in_containers(folder: Path) -> None:
    sample = take_sample(open_folder(folder))
    assert sample.entries == 3
    assert take_sample(open_folder(folder), limit=2).entries == 2
    assert take_sample(open_folder(folder)) == sample
    os.utime(folder / "a.md", (1_000, 1_000))
    assert take_sample(open_folder(folder)) != sample


def test_lines_of_a_local_file_are_local_too(folder: Path) -> None:
    (folder.parent / "docs.jsonl").write_text('{"id": "a", "text": "Gate one is open."}\n')
    lines = open_folder(f"jsonl:{folder.parent / 'docs.jsonl'}")
    assert is_local(lines)
    assert take_sample(lines).entries == 1


def test_nodes_that_see_the_same_files_are_enough_and_a_head_without_cpus_is_not_asked(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = open_folder(folder)
    sample = take_sample(source)
    probes = script_answers(monkeypatch, {WORKER: sample, OTHER: sample})
    check_folders([source], [WORKER, OTHER, HEAD])
    assert probes == [[WORKER, OTHER]]


def test_a_folder_that_changes_meanwhile_is_compared_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = open_folder(folder)
    sample = take_sample(source)
    script_answers(monkeypatch, {WORKER: sample, OTHER: Sample(2, "older")}, {WORKER: sample, OTHER: sample})
    check_folders([source], [WORKER, OTHER])


def test_nodes_that_lack_the_folder_are_named_with_the_reason(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = open_folder(folder)
    answers = {WORKER: "'/docs' cannot be listed", OTHER: Sample(3, "other")}
    script_answers(monkeypatch, answers, answers)
    with pytest.raises(UnsharedFolderError, match="differs on 2 of 2 nodes") as refusal:
        check_folders([source], [WORKER, OTHER])
    message = str(refusal.value)
    assert f"{WORKER.name}: '/docs' cannot be listed" in message
    assert f"{OTHER.name}: files with other names, sizes or times" in message
    assert "--shared (ingestion.shared_folders)" in message
