"""A program with a gateway, a model's deployment and an ingest job on one Ray.

Its argument is `Arguments` as JSON. It prints a line when the gateway can answer, and exits at the end of its standard
input.
"""

import json
import logging
import os
import sys
from dataclasses import dataclass
from threading import Event, Thread
from typing import Any

import ray
from fakes.serving import scripted_graph
from fastapi import FastAPI
from ray import serve
from ray.serve.handle import DeploymentHandle

from jobs.ray_connection import RAY_ENVIRONMENT, Resources
from jobs.ray_runner import RayRunner
from rag_core.errors import RetrievalError
from rag_core.settings import load_settings
from rag_core.stage import attempt
from rag_core.storage.postgres import Postgres
from rag_core.types import Hit, Query
from rag_core.wiring.ingestion import build_sync
from serve.gateway import build_fastapi
from serve.profiles import ServedProfiles
from serve.telemetry import (
    configure_telemetry,
    continuing_operation,
    job_operation,
    outgoing_values,
    poll_queue_depths,
    record_breaker_state,
)

HASHING = ("embedding={type: hashing, dimension: 32}", "guard.mode=off")
_log = logging.getLogger("serve.observed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """Ports of this machine, and folders. `traceparent` is that of the ingest job."""

    port: int
    metrics_port: int
    session: str
    dsn: str
    documents: str
    correlation_id: str
    traceparent: str


@serve.deployment(name="Reader", ray_actor_options={"num_cpus": 0})
class Reader:
    """A replacement of a model."""

    def __init__(self) -> None:
        configure_telemetry("reader", load_settings(environment={}).telemetry)

    async def read(self, question: str, values: dict[str, str]) -> int:
        with continuing_operation(values, "Reader"):
            _log.warning("read %d words of: %s", len(question.split()), question)
            return len(question)

    async def break_down(self, question: str) -> None:
        raise ValueError(f"password=hunter2 is wrong for {question}")


@serve.deployment(name="Runner", ray_actor_options={"num_cpus": 0})
class Runner:
    """A replacement of the runner of queued jobs."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._arguments = Arguments(**arguments)
        self._settings = load_settings(overrides=(*HASHING, f"store.url={self._arguments.dsn}"), environment={})
        configure_telemetry("ingest", self._settings.telemetry)

    def run(self) -> int:
        job_arguments, settings, postgres = self._arguments, self._settings, Postgres(self._arguments.dsn)
        Thread(target=poll_queue_depths, args=(postgres, Event(), 0.5), daemon=True).start()
        with job_operation(
            job_arguments.correlation_id, job_arguments.traceparent, settings.tenant, settings.profile
        ) as job:
            report = build_sync(settings, postgres, [job_arguments.documents]).run(
                RayRunner(settings, Resources(cpus=1))
            )
            job.counts = report.documents
        return report.documents["added"]


class CallingRetriever:
    """A retriever that calls a deployment in another process and finds nothing. One of its legs always fails."""

    def __init__(self, reader: DeploymentHandle) -> None:
        self._reader = reader

    async def retrieve(self, query: Query, k: int) -> list[Hit]:  # noqa: ARG002
        await attempt("rerank", self._read(query), otherwise=0)
        await attempt("dense", self._break(query), otherwise=None)
        return []

    async def _read(self, query: Query) -> int:
        read: int = await self._reader.read.remote(query.text, outgoing_values())
        return read

    async def _break(self, query: Query) -> None:
        try:
            await self._reader.break_down.remote(query.text)
        except ValueError as error:
            raise RetrievalError(f"the reader broke: {error}") from error


@serve.deployment(name="Gateway", ray_actor_options={"num_cpus": 0})
@serve.ingress()
class ObservedGateway:
    def __init__(self, reader: DeploymentHandle) -> None:
        self._graph = scripted_graph(CallingRetriever(reader))
        configure_telemetry("gateway", self._graph.settings.telemetry)
        record_breaker_state("reader", "half_open")

    async def __serve_build_asgi_app__(self) -> FastAPI:
        return build_fastapi(ServedProfiles(self._graph))


def main(arguments: Arguments) -> None:
    os.environ.update(RAY_ENVIRONMENT)
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        _temp_dir=arguments.session,
        _metrics_export_port=arguments.metrics_port,
    )
    serve.start(http_options={"host": "127.0.0.1", "port": arguments.port})
    runner = serve.run(Runner.bind(json.loads(sys.argv[1])), name="runner", route_prefix=None)  # type: ignore[attr-defined]
    serve.run(ObservedGateway.bind(Reader.bind()), name="gateway")  # type: ignore[attr-defined]
    documents = runner.run.remote().result(timeout_s=120)
    print(json.dumps({"documents": documents}), flush=True)
    sys.stdin.read()
    serve.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main(Arguments(**json.loads(sys.argv[1])))
