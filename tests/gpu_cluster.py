"""A sync on a local Ray that counts GPUs which do not exist: `python gpu_cluster.py DSN FOLDER CASES`.

It is a separate process, because a process can use only one cluster. `CASES` is a JSON list of [GPUs of the cluster,
requested GPUs, settings]. It prints the outcome of each case as JSON.
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


def main(dsn: str, folder: str, cases: str) -> None:
    os.environ.update(RAY_ENVIRONMENT)
    print(json.dumps([outcome(dsn, folder, *case) for case in json.loads(cases)]))


def outcome(dsn: str, folder: str, cluster_gpus: int, requested_gpus: int, overrides: Sequence[str]) -> dict[str, Any]:
    settings = load_settings(overrides=overrides, environment={})
    ray.init(address="local", num_cpus=2, num_gpus=cluster_gpus, include_dashboard=False, log_to_driver=False)
    start_ray()
    try:
        runner = RayRunner(settings, Resources(gpus=requested_gpus))
        report = build_sync(settings, Postgres.open(dsn), [folder], f"of-{cluster_gpus}-{requested_gpus}").run(runner)
        return {"documents": report.documents}
    except RagError as error:
        return {"error": type(error).__name__, "message": str(error)}
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
