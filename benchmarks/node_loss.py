"""The loss of a node of a Ray cluster, under load: what clients notice, and how long a job takes.

Three nodes run on this machine, and one of the two that work is killed with all its processes. What the page
how-to/rolling-restart.md says of a node is measured here.

    python -m benchmarks.node_loss --of serving
    python -m benchmarks.node_loss --of ingest --documents 2000

`serving`: clients send searches and questions to the shape for GPUs, with tiny models on CPUs. A client repeats a
request once if its connection broke. `ingest`: a submitted sync loses the node when half of its documents are stored.
"""

import argparse
import asyncio
import subprocess
import time
from pathlib import Path

import psycopg

from benchmarks.cluster_serve import list_replicas, wait_until_deployed
from benchmarks.machine import heading
from benchmarks.rolling_restart import HASHING, measure, serve_on_three_nodes
from benchmarks.scratch import scratch_folder
from benchmarks.tcp_servers import run_over_tcp
from benchmarks.three_nodes import ThreeNodes, three_nodes

COUNT = "select count(*) from rag.documents where status = 'completed'"


def main() -> None:
    arguments = _arguments()
    print(heading(), flush=True)
    with scratch_folder() as scratch, run_over_tcp(scratch / "postgres") as store:
        if arguments.of == "serving":
            with serve_on_three_nodes(scratch, store) as (cluster, shape):
                loss = {"a node is lost": lambda: lose_node(cluster)}
                asyncio.run(measure(arguments, [f"http://127.0.0.1:{shape['http_options']['port']}"], loss))
        else:
            write_documents(scratch / "docs", arguments.documents)
            seconds = [ingest(scratch, store, name, loses_node=name == "disturbed") for name in ("whole", "disturbed")]
            print(f"{arguments.documents} documents: {seconds[0]:.1f} s undisturbed, {seconds[1]:.1f} s with a loss")


def lose_node(cluster: ThreeNodes) -> None:
    """Kills a worker, and waits until all its replicas run on other nodes. One without CPUs can be on the head."""
    before = list_replicas(cluster)
    nodes = {replica.node for replica in before}
    cluster.workers[0].kill()
    seconds = wait_until_deployed(
        cluster, lambda replicas: len(replicas) == len(before) and {replica.node for replica in replicas} < nodes
    )
    print(f"all {len(before)} replicas were back after {seconds:.1f} s", flush=True)


def write_documents(folder: Path, count: int) -> None:
    folder.mkdir()
    for number in range(count):
        text = "\n\n".join(f"Gate {number} opens at {hour} for ship {number * hour}." for hour in range(12))
        (folder / f"{number:06}.md").write_text(f"# Gate {number}\n\n{text}\n")


def ingest(scratch: Path, store: str, collection: str, *, loses_node: bool) -> float:
    """Submits a sync to a new cluster. Returns the seconds until it is complete."""
    folder = scratch / collection
    folder.mkdir()
    options = [part for setting in HASHING for part in ("--set", setting)]
    command = ["python", "-m", "jobs.ingest", str(scratch / "docs"), "--collection", collection, "--runner", "ray"]
    with (
        three_nodes(folder, {"RAG_HOME": str(scratch / "home"), "RAG_STORE__URL": store}) as cluster,
        psycopg.connect(store, autocommit=True) as connection,
    ):
        goal = _count(connection) + len(list((scratch / "docs").iterdir())) / 2
        began = time.monotonic()
        with cluster.run("ray", "job", "submit", "--", *command, *options, stdout=subprocess.DEVNULL) as job:
            while loses_node and job.poll() is None:
                if _count(connection) >= goal:
                    cluster.workers[0].kill()
                    break
                time.sleep(0.1)
            if job.wait():
                raise SystemExit(f"the job ended with {job.returncode}")
        return time.monotonic() - began


def _count(connection: psycopg.Connection) -> int:
    try:
        row = connection.execute(COUNT).fetchone()
    except psycopg.errors.UndefinedTable:
        return 0
    return int(row[0]) if row else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--of", choices=("serving", "ingest"), default="serving")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--pause", type=float, default=0.1, help="seconds after each response")
    parser.add_argument("--seconds", type=float, default=60.0, help="of undisturbed load")
    parser.add_argument("--documents", type=int, default=2000)
    return parser.parse_args()


if __name__ == "__main__":
    main()
