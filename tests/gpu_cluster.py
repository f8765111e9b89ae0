"""Syncs on a local Ray that counts GPUs which do not exist: `python gpu_cluster.py DSN FOLDER GPUS CASES`.

It is a separate process, because a process can use only one cluster. `CASES` is a JSON list of [requested GPUs,
settings]. It prints the outcome of each case as JSON.
"""

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

import ray

from jobs.ray_connection import RAY_ENVIRONMENT, Resources, start_ray
from jobs.ray_runner import RayRunner
from rag_core.errors import RagError
from rag_core.settings import load_settings
from rag_core.storage.postgres import Postgres
from rag_core.wiring.ingestion import build_sync


def main(dsn: str, folder: str, cluster_gpus: str, cases: str) -> None:
    os.environ.update(RAY_ENVIRONMENT)
    ray.init(address="local", num_cpus=2, num_gpus=int(cluster_gpus), include_dashboard=False, log_to_driver=False)
    start_ray()
    try:
        print(json.dumps([sync_on_gpus(dsn, folder, *case) for case in json.loads(cases)]))
    finally:
        ray.shutdown()


def sync_on_gpus(dsn: str, folder: str, requested_gpus: int, overrides: Sequence[str]) -> dict[str, Any]:
    """Syncs the folder into a collection named after the number of GPUs."""
    settings = load_settings(overrides=overrides, environment={})
    try:
        runner = RayRunner(settings, Resources(gpus=requested_gpus))
        report = build_sync(settings, Postgres.open(dsn), [folder], f"on-{requested_gpus}").run(runner)
        return {"documents": report.documents}
    except RagError as error:
        return {"error": type(error).__name__, "message": str(error)}


if __name__ == "__main__":
    main(*sys.argv[1:])
