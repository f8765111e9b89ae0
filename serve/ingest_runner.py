"""The jobs of the queue, done by deployments of Ray Serve: as many replicas as there shall be jobs side by side."""

from threading import Event, Thread

from ray import serve
from ray.serve import Application

from jobs.worker import AGAIN, Worker
from rag_core.config import Settings
from rag_core.errors import ClusterError, StoreError
from rag_core.storage.postgres import Postgres
from serve.telemetry import keep_telling_depths, observe

ENDING = 5.0
"""Seconds that a job which was given back has to notice that."""


@serve.deployment(num_replicas=1, ray_actor_options={"num_cpus": 0}, health_check_period_s=10)
class IngestRunner:
    """Killed at any moment, another takes its job when the lease has run out."""

    def __init__(self, settings: str) -> None:
        own = Settings.model_validate_json(settings)
        observe("ingest", own.telemetry)
        self._worker, self._ended = Worker(own), Event()
        self._working = Thread(target=self._worker.run, daemon=True)
        self._working.start()
        Thread(target=_tell_depths, args=(own.store.url, self._ended), daemon=True).start()

    def check_health(self) -> None:
        """That the store is away is no reason to be started again: so it would still be away."""
        if not self._working.is_alive():
            raise ClusterError("the loop of the ingest runner has ended")

    def __del__(self) -> None:
        self._ended.set()
        self._worker.stop()
        self._working.join(ENDING)


def _tell_depths(url: str, ended: Event) -> None:
    while not ended.is_set():
        try:
            keep_telling_depths(Postgres.open(url), ended)
        except StoreError:
            ended.wait(AGAIN)


def runner_app(settings: Settings) -> Application:
    app: Application = IngestRunner.bind(settings.model_dump_json())  # type: ignore[attr-defined]
    return app
