"""A gateway, a model's deployment and an ingest job on one Ray, as a program of its own: its arguments are those of
`Arguments` as JSON. It prints a line when it answers, and ends with its standard input."""

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

from jobs.ray_runner import RAY_ENVIRONMENT, RayRunner, Resources
from rag_core.errors import RetrievalError
from rag_core.settings import load_settings
from rag_core.stage import attempt
from rag_core.storage.postgres import Postgres
from rag_core.types import Hit, Query
from rag_core.wiring.ingestion import build_sync
from serve.gateway import build_app
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
    """Ports of this machine; folders; `traceparent` is the ingest job's."""

    port: int
    metrics_port: int
    session: str
    dsn: str
    documents: str
    correlation_id: str
    traceparent: str


@serve.deployment(name="Reader", ray_actor_options={"num_cpus": 0})
class Reader:
    """In place of a model."""

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
    """In place of the queue's."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._asked = Arguments(**arguments)
        self._settings = load_settings(overrides=(*HASHING, f"store.url={self._asked.dsn}"), environment={})
        configure_telemetry("ingest", self._settings.telemetry)

    def run(self) -> int:
        asked, settings, postgres = self._asked, self._settings, Postgres(self._asked.dsn)
        Thread(target=poll_queue_depths, args=(postgres, Event(), 0.5), daemon=True).start()
        with job_operation(asked.correlation_id, asked.traceparent, settings.tenant, settings.profile) as job:
            report = build_sync(settings, postgres, [asked.documents]).run(RayRunner(settings, Resources(cpus=1)))
            job.counts = report.documents
        return report.documents["added"]


class AskingReader:
    """A retriever that finds nothing, with what another process says of it; one of its legs is always broken."""

    def __init__(self, reader: DeploymentHandle) -> None:
        self._reader = reader

    async def retrieve(self, query: Query, k: int) -> list[Hit]:  # noqa: ARG002
        await attempt("rerank", self._read(query), otherwise=0)
        await attempt("dense", self._broken(query), otherwise=None)
        return []

    async def _read(self, query: Query) -> int:
        read: int = await self._reader.read.remote(query.text, outgoing_values())
        return read

    async def _broken(self, query: Query) -> None:
        try:
            await self._reader.break_down.remote(query.text)
        except ValueError as error:
            raise RetrievalError(f"the reader broke: {error}") from error


@serve.deployment(name="Gateway", ray_actor_options={"num_cpus": 0})
@serve.ingress()
class ObservedGateway:
    def __init__(self, reader: DeploymentHandle) -> None:
        self._graph = scripted_graph(AskingReader(reader))
        configure_telemetry("gateway", self._graph.settings.telemetry)
        record_breaker_state("reader", "half_open")

    async def __serve_build_asgi_app__(self) -> FastAPI:
        return build_app(self._graph)


def main(asked: Arguments) -> None:
    os.environ.update(RAY_ENVIRONMENT)
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        _temp_dir=asked.session,
        _metrics_export_port=asked.metrics_port,
    )
    serve.start(http_options={"host": "127.0.0.1", "port": asked.port})
    runner = serve.run(Runner.bind(json.loads(sys.argv[1])), name="runner", route_prefix=None)  # type: ignore[attr-defined]
    serve.run(ObservedGateway.bind(Reader.bind()), name="gateway")  # type: ignore[attr-defined]
    documents = runner.run.remote().result(timeout_s=120)
    print(json.dumps({"documents": documents}), flush=True)
    sys.stdin.read()
    serve.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main(Arguments(**json.loads(sys.argv[1])))
