"""A Ray cluster of two nodes on this machine, and syncs on it: `python two_nodes.py DSN LOCATION [DSN LOCATION ...]`.

It is a separate process, because a process can use only one cluster. It prints the outcomes of the syncs as JSON.
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray
from ray.cluster_utils import Cluster
from trees import hashing_settings

from jobs.ray_connection import start_ray
from jobs.ray_runner import RayRunner
from rag_core.errors import RagError
from rag_core.storage.postgres import Postgres
from rag_core.wiring.ingestion import build_sync


def main(*pairs: str) -> None:
    with two_nodes():
        outcomes = [outcome(dsn, location) for dsn, location in zip(pairs[::2], pairs[1::2], strict=True)]
    print(json.dumps(outcomes))


def outcome(dsn: str, location: str) -> dict[str, Any]:
    settings = hashing_settings("ingestion.group=8")
    try:
        report = build_sync(settings, Postgres.open(dsn), [location]).run(RayRunner(settings))
        return {"nodes": nodes(), "documents": report.documents}
    except RagError as error:
        return {"nodes": nodes(), "error": type(error).__name__, "message": str(error)}


@contextmanager
def two_nodes() -> Iterator[None]:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        cluster.add_node(num_cpus=1)
        os.environ["RAY_ADDRESS"] = cluster.address
        start_ray()
        yield
    finally:
        ray.shutdown()
        cluster.shutdown()


def nodes() -> int:
    return sum(node["Alive"] for node in ray.nodes())


if __name__ == "__main__":
    main(*sys.argv[1:])
