"""A rolling restart under load: how many requests fail, how many are repeated, and how much slower are the others?

Clients send searches and questions in turn, first undisturbed, then during each change. A client repeats a request once
if its connection broke. Nobody repeats a request that got a response.

    python -m benchmarks.rolling_restart --of processes
    python -m benchmarks.rolling_restart --of one-process
    python -m benchmarks.rolling_restart --of replicas
    python -m benchmarks.rolling_restart --of replicas --surge 0
    python -m benchmarks.rolling_restart --of replicas --without-models

`processes` are two `rag serve` behind a load balancer that reads `/readyz`. They are terminated and started again, one
after the other. `one-process` is a single one. `replicas` are those of cluster/serve/gpu.yaml on three nodes of Ray,
with tiny models on CPUs, or only its gateways with the hashing embedder. A changed setting replaces all of them, and so
does another release of the program.
"""

import argparse
import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.cluster_serve import deploy, list_replicas, wait_until_deployed
from benchmarks.free_port import find_free_port
from benchmarks.gateway_process import GatewayProcess
from benchmarks.idempotent_clients import Balancer, Load, Phases, Summary, send_requests
from benchmarks.machine import heading
from benchmarks.scratch import scratch_folder
from benchmarks.small_shape import QUESTION, gateways_only, ingest_texts, small_settings, small_shape, write_tiny_models
from benchmarks.tcp_servers import run_over_tcp
from benchmarks.three_nodes import ThreeNodes, three_nodes

HASHING = ("embedding.type=hashing", "answering.budget=none", "retrieval.timeout_ms=60000")
"""Settings without a model, and without limits that a slow machine would exceed."""
WARM_UP_SECONDS = 5.0

Change = Callable[[], object]


def main() -> None:
    arguments = _arguments()
    print(heading(), flush=True)
    with scratch_folder() as scratch, run_over_tcp(scratch / "postgres") as store:
        if arguments.of == "replicas":
            with serve_on_three_nodes(scratch, store, arguments.surge, arguments.without_models) as (cluster, shape):
                changes = {
                    "changed setting": lambda: change_setting(cluster, shape, scratch),
                    "another release": lambda: change_release(cluster, shape, scratch),
                }
                asyncio.run(measure(arguments, [f"http://127.0.0.1:{shape['http_options']['port']}"], changes))
        else:
            count = 2 if arguments.of == "processes" else 1
            with gateway_processes(scratch, store, count) as gateways:
                restarts = {f"restart of gateway {n + 1}": restart(gateways[n]) for n in range(count)}
                asyncio.run(measure(arguments, [gateway.url for gateway in gateways], restarts))


async def measure(
    arguments: argparse.Namespace, urls: list[str], changes: Mapping[str, Change]
) -> Mapping[str, Summary]:
    """The summaries of the undisturbed time, and of each change. Prints them as a table."""
    load = Load(question=QUESTION, balancer=Balancer(urls=urls), pause=arguments.pause)
    phases = Phases(load)
    async with send_requests(load, arguments.clients):
        await asyncio.sleep(WARM_UP_SECONDS)
        phases.begin("undisturbed")
        await asyncio.sleep(arguments.seconds)
        for name, change in changes.items():
            phases.begin(name)
            await asyncio.to_thread(change)
        phases.begin("afterwards")
        await asyncio.sleep(arguments.seconds / 2)
    return phases.print_table()


@contextmanager
def gateway_processes(scratch: Path, store: str, count: int) -> Iterator[list[GatewayProcess]]:
    """Runs gateways with the hashing embedder over one store."""
    ingest_texts(scratch / "docs", [f"store.url={store}", *HASHING], profile="default")
    options = [part for setting in HASHING for part in ("--set", setting)]
    gateways = [GatewayProcess(folder=scratch, store=store, options=options) for _ in range(count)]
    with ExitStack() as stack:
        for gateway in gateways:
            stack.callback(gateway.terminate)
            gateway.start()
        yield gateways


def restart(gateway: GatewayProcess) -> Change:
    def terminate_and_start() -> None:
        if code := gateway.terminate():
            raise SystemExit(f"the gateway ended with {code}: {gateway.log.read_text()}")
        gateway.start()

    return terminate_and_start


@contextmanager
def serve_on_three_nodes(
    scratch: Path, store: str, surge: int | None = None, without_models: bool = False
) -> Iterator[tuple[ThreeNodes, dict[str, Any]]]:
    """Serves the shape for GPUs with tiny models, or without. `surge` replaces each `max_surge_percent`."""
    with ExitStack() as stack:
        port = find_free_port()
        if without_models:
            settings = [f"store.url={store}", *HASHING]
        else:
            stack.enter_context(_run_endpoint(port))
            write_tiny_models(scratch / "models")
            settings = small_settings(scratch / "models", store, f"http://127.0.0.1:{port}/v1")
        ingest_texts(scratch / "docs", settings, "default" if without_models else "gpu")
        environment = {"RAG_HOME": str(scratch / "home"), "RAG_STORE__URL": store}
        cluster = stack.enter_context(three_nodes(scratch, environment, worker_cpus=2))
        shape = small_shape(settings, find_free_port())
        if without_models:
            shape = gateways_only(shape, settings)
        if surge is not None:
            for deployment in shape["applications"][0]["deployments"]:
                deployment["max_surge_percent"] = surge
        deploy(cluster, shape, scratch / "serve.yaml")
        wait_until_deployed(cluster, lambda replicas: len(replicas) >= 2)
        yield cluster, shape


@contextmanager
def _run_endpoint(port: int) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.chat_endpoint", str(port)])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def change_setting(cluster: ThreeNodes, shape: dict[str, Any], folder: Path) -> None:
    """Changes a setting in `args`, which replaces all replicas."""
    shape["applications"][0]["args"]["set"].append("packing.passages=5")
    replace_replicas(cluster, shape, folder)


def change_release(cluster: ThreeNodes, shape: dict[str, Any], folder: Path) -> None:
    """Changes the runtime environment, as another version of the program does."""
    shape["applications"][0]["runtime_env"] = {"env_vars": {"RAG_RELEASE": "2"}}
    replace_replicas(cluster, shape, folder)


def replace_replicas(cluster: ThreeNodes, shape: Mapping[str, Any], folder: Path) -> None:
    before = {replica.id for replica in list_replicas(cluster)}
    deploy(cluster, shape, folder / "serve.yaml")
    seconds = wait_until_deployed(
        cluster, lambda replicas: len(replicas) == len(before) and before.isdisjoint(replica.id for replica in replicas)
    )
    print(f"all {len(before)} replicas were replaced after {seconds:.1f} s", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--of", choices=("processes", "one-process", "replicas"), default="processes")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--pause", type=float, default=0.1, help="seconds after each response")
    parser.add_argument("--seconds", type=float, default=60.0, help="of undisturbed load")
    parser.add_argument("--without-models", action="store_true", help="only gateways, with the hashing embedder")
    parser.add_argument("--surge", type=int, help="max_surge_percent of all deployments")
    return parser.parse_args()


if __name__ == "__main__":
    main()
