"""Embedding on GPUs as Ray counts them: a real local cluster with GPUs that do not exist."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from trees import HASHING, read_tree, violations, write
from witness import witness_settings

from rag_core.storage.postgres import Postgres

pytestmark = [pytest.mark.ray, pytest.mark.postgres, pytest.mark.slow]

SCRIPT = Path(__file__).parents[1] / "gpu_cluster.py"
FILES = {f"{n:03}.md": f"# Gate {n}\n\nGate {n} is four metres wide and opens at {n % 12}.\n" for n in range(3_000)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "docs", FILES)


def run_on_gpus(store: Postgres, folder: Path, *cases: tuple[int, int, tuple[str, ...]]) -> list[dict[str, Any]]:
    process = subprocess.run(
        [sys.executable, str(SCRIPT), store.dsn, str(folder), json.dumps(cases)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    outcomes: list[dict[str, Any]] = json.loads(process.stdout.splitlines()[-1])
    return outcomes


def test_embedding_actors_have_a_gpu_each_and_are_as_many_as_requested(
    store: Postgres, folder: Path, tmp_path: Path
) -> None:
    witness_folder = tmp_path / "actors"
    witness_folder.mkdir()
    (outcome,) = run_on_gpus(store, folder, (3, 2, witness_settings(witness_folder, processes=2)))
    assert outcome["documents"]["completed"] == len(FILES)
    assert len({file.read_text() for file in witness_folder.iterdir()}) == len(list(witness_folder.iterdir())) == 2
    assert violations(store) == []


def test_gpus_that_the_cluster_has_not_are_refused_by_name(store: Postgres, folder: Path) -> None:
    too_many, none = run_on_gpus(store, folder, (2, 3, HASHING), (0, 1, HASHING))
    assert too_many == {
        "error": "ClusterError",
        "message": "--gpus must be at most 2, the number of GPUs of the Ray cluster, got 3",
    }
    assert none == {
        "error": "ClusterError",
        "message": "--gpus must be at most 0, the number of GPUs of the Ray cluster, got 1",
    }
    assert read_tree(store, "of-2-3").documents == {}
    assert violations(store) == []
