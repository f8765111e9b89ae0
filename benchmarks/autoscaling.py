"""The reranker's deployment under load: a Serve config scales it from one replica to more, and back.

Each line has the replicas that `serve status` reports at that second, and the calls that wait or run.

    nice -n 10 python -m benchmarks.autoscaling --callers 12 --seconds 40
"""

import argparse
import asyncio
import logging
import time
import warnings
from contextlib import suppress
from typing import Any

from benchmarks.corpus import passages
from benchmarks.machine import heading

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Ray itself causes these warnings
    import ray
    from ray import serve
    from ray.serve import Application

    from rag_core.breaker import Breaker
    from rag_core.errors import ClusterError, RagError
    from serve.models.model_connections import model_deployment
    from serve.models.remote import RemotePairs
    from serve.shape.arguments import Arguments, settings_from_arguments
    from serve.shape.config import parse_serve_config
    from serve.shape.local import deploy, set_environment

NAME = "Reranker"
PAIRS = 10
"""Number of candidates per question."""
RERANKED = (
    "retrieval={type: reranked, retriever: {type: dense}, reranker: {type: late_interaction, model: all-MiniLM-L6-v2}}"
)


def build(arguments: Arguments) -> Application:
    """The deployment alone, without a gateway."""
    return model_deployment(settings_from_arguments(arguments), "reranker")


def serve_config(max_replicas: int) -> dict[str, Any]:
    """A Serve config like cluster/serve/gpu.yaml, but for a machine without a GPU and with short delays."""
    scaling = {
        "min_replicas": 1,
        "max_replicas": max_replicas,
        "target_ongoing_requests": 2,
        "look_back_period_s": 2,
        "upscale_delay_s": 2,
        "downscale_delay_s": 6,
    }
    deployment = {
        "name": NAME,
        "autoscaling_config": scaling,
        "max_ongoing_requests": 8,
        "ray_actor_options": {"num_cpus": 0.1},
        "graceful_shutdown_timeout_s": 5,
    }
    application = {
        "name": "scaled",
        "route_prefix": None,
        "import_path": "benchmarks.autoscaling:build",
        "args": {"set": [RERANKED]},
        "deployments": [deployment],
    }
    return {"proxy_location": "Disabled", "applications": [application]}


def main() -> None:
    arguments = _arguments()
    print(heading())
    set_environment()
    ray.init(address="local", include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    try:
        serve.start(proxy_location="Disabled", logging_config={"log_level": "ERROR", "enable_access_log": False})
        deploy(parse_serve_config(serve_config(arguments.most)))
        _await_replica()
        asyncio.run(_run_phases(arguments.callers, arguments.seconds))
    finally:
        serve.shutdown()  # type: ignore[no-untyped-call]
        ray.shutdown()


class Load:
    """Callers that each send a new call as soon as the previous one has returned."""

    def __init__(self) -> None:
        handle = serve.get_deployment_handle(NAME, "scaled")
        self._pairs = RemotePairs(handle, Breaker("the reranker"), "reranker")
        texts = passages(PAIRS)
        self._candidates = [("What is known of the keys of a house?", text) for text in texts]
        self.ongoing, self.answered, self.failed = 0, 0, 0

    async def caller(self) -> None:
        while True:
            self.ongoing += 1
            try:
                await self._pairs.score(self._candidates)
                self.answered += 1
            except RagError:
                self.failed += 1
            finally:
                self.ongoing -= 1


async def _run_phases(callers: int, seconds: float) -> None:
    load, began = Load(), time.perf_counter()
    print(f"{'second':>7} {'callers':>8} {'ongoing':>8} {'answered':>9} {'failed':>7}  replicas")
    for number in (1, callers, 0):
        tasks = [asyncio.create_task(load.caller()) for _ in range(number)]
        await _print_changes(load, number, began, seconds)
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def _print_changes(load: Load, callers: int, began: float, seconds: float) -> None:
    """Prints a line in every second with a change of replicas, and one at the end."""
    end, previous = time.perf_counter() + seconds, ""
    while (now := time.perf_counter()) < end:
        states = await asyncio.to_thread(_replica_states)
        if states != previous:
            _show(now - began, callers, load, states)
            previous = states
        await asyncio.sleep(1)
    _show(time.perf_counter() - began, callers, load, previous)


def _show(second: float, callers: int, load: Load, states: str) -> None:
    print(f"{second:7.0f} {callers:8} {load.ongoing:8} {load.answered:9} {load.failed:7}  {states}", flush=True)


def _replica_states() -> str:
    deployment = serve.status().applications["scaled"].deployments[NAME]
    counts = ", ".join(f"{count} {state}" for state, count in deployment.replica_states.items())
    return f"{deployment.status.value}: {counts}"


def _await_replica() -> None:
    """Waits for the first replica. Raises ClusterError if the deployment fails."""
    while (application := serve.status().applications["scaled"]).status != "RUNNING":
        if application.status == "DEPLOY_FAILED":
            raise ClusterError(f"the reranker cannot be deployed: {application.message}")
        time.sleep(0.2)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--callers", type=int, default=12, help="number of callers under full load")
    parser.add_argument("--seconds", type=float, default=40.0, help="seconds with one caller, with all, and with none")
    parser.add_argument("--most", type=int, default=3, help="maximum number of replicas")
    return parser.parse_args()


if __name__ == "__main__":
    main()
