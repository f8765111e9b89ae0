"""A deployment that runs the queued ingest jobs. Each of its replicas runs one job at a time."""

from threading import Event, Thread

from ray import serve
from ray.serve import Application

from jobs.worker import RETRY_SECONDS, Worker
from rag_core.config import Settings
from rag_core.errors import ClusterError, ConfigError, StoreError
from rag_core.storage.postgres import Postgres
from serve.telemetry import configure_telemetry, poll_store, record_store_availability

STOP_TIMEOUT = 5.0
"""Seconds for which a stopping replica waits until its worker has queued its job again."""


@serve.deployment(num_replicas=1, ray_actor_options={"num_cpus": 0}, health_check_period_s=10)
class IngestRunner:
    """A worker of the job queue. If it is killed, another worker takes its job over when the lease has expired."""

    def __init__(self, settings: str) -> None:
        parsed = Settings.model_validate_json(settings)
        configure_telemetry("ingest", parsed.telemetry)
        self._worker, self._stopping = Worker(parsed), Event()
        self._worker_thread = Thread(target=self._worker.run, daemon=True)
        self._worker_thread.start()
        Thread(target=_poll_store, args=(parsed.store.url, self._stopping), daemon=True).start()

    def check_health(self) -> None:
        """Raises ClusterError if the worker has died. It survives an outage of the store, so no restart is needed."""
        if not self._worker_thread.is_alive():
            raise ClusterError("the worker thread of the ingest runner has died")

    def __del__(self) -> None:
        self._stopping.set()
        self._worker.stop()
        self._worker_thread.join(STOP_TIMEOUT)


def _poll_store(url: str, stopping: Event) -> None:
    """Records the gauges of the store until the replica stops. Reconnects if the store was unavailable."""
    while not stopping.is_set():
        try:
            poll_store(Postgres.open(url), stopping)
        except (ConfigError, StoreError):
            record_store_availability(False)
            stopping.wait(RETRY_SECONDS)


def runner_app(settings: Settings) -> Application:
    app: Application = IngestRunner.bind(settings.model_dump_json())  # type: ignore[attr-defined]
    return app
