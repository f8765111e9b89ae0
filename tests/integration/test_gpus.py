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

from jobs.ray_connection import Resources
from jobs.ray_runner import RayRunner
from rag_core.errors import ClusterError
from rag_core.settings import load_settings
from rag_core.storage.postgres import Postgres
from rag_core.wiring.ingestion import build_sync

pytestmark = [pytest.mark.ray, pytest.mark.postgres, pytest.mark.slow]

SCRIPT = Path(__file__).parents[1] / "gpu_cluster.py"
FILES = {f"{n:03}.md": f"# Gate {n}\n\nGate {n} is four metres wide and opens at {n % 12}.\n" for n in range(3_000)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "docs", FILES)


def run_on_gpus(store: Postgres, folder: Path, gpus: int, *cases: tuple[int, tuple[str, ...]]) -> list[dict[str, Any]]:
    process = subprocess.run(
        [sys.executable, str(SCRIPT), store.dsn, str(folder), str(gpus), json.dumps(cases)],
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
    too_many, two = run_on_gpus(store, folder, 3, (4, HASHING), (2, witness_settings(witness_folder, processes=2)))
    assert too_many == {
        "error": "ClusterError",
        "message": "--gpus must be at most 3, the number of GPUs of the Ray cluster, got 4",
    }
    assert read_tree(store, "on-4").documents == {}
    assert two["documents"]["completed"] == len(FILES)
    assert len({file.read_text() for file in witness_folder.iterdir()}) == len(list(witness_folder.iterdir())) == 2
    assert violations(store) == []


@pytest.mark.usefixtures("ray_cluster")
def test_a_gpu_is_refused_by_name_on_a_cluster_without_one(store: Postgres, folder: Path) -> None:
    settings = load_settings(overrides=HASHING, environment={})
    sync = build_sync(settings, store, [str(folder)])
    with pytest.raises(ClusterError) as refusal:
        sync.run(RayRunner(settings, Resources(gpus=1)))
    assert str(refusal.value) == "--gpus must be at most 0, the number of GPUs of the Ray cluster, got 1"
    assert read_tree(store).documents == {}
    assert violations(store) == []
