"""Ingestion on Ray Data: one streaming pipeline of three operators, whatever the size of the corpus."""

import logging
import os
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

from jobs.ray_errors import errors_as_raised
from rag_core.config import Settings
from rag_core.errors import ClusterError, SourceError, StoreError
from rag_core.ingestion.report import RunTimes
from rag_core.protocols import Source
from rag_core.storage.embedded import home
from rag_core.storage.publishing import Target
from rag_core.telemetry.operation import Operation, current_operation
from rag_core.types import Draft

if TYPE_CHECKING:
    import pyarrow as pa

    from jobs.stages import Publish, Work

BLOCK_DOCUMENTS = 128
BLOCK_BYTES = 512 * 1024
"""A block is what an embedding actor takes at once, and what progress counts in; it costs some 30 ms of scheduling."""
OUTPUT_BYTES = 1 << 20
"""Where Ray cuts what a stage yields into blocks, between rows. Small enough that the parts of a very large document
spread over the actors; the drafts of an ordinary block are hardly more."""
SMALL_SHARE = 0.25
"""CPUs of a task that reads or publishes, beside which an embedding actor keeps the rest of its CPU. There are never
more of them than CPUs, also while no actor is there: every process costs some 150 MB, and a second to start."""
RESERVED = 0.1
"""Share of the CPUs that Ray reserves for its operators, in equal parts. At .5, the default, reading has reserved
what publishing needs, and on two CPUs nothing is published before all has been read."""

ENVIRONMENT = {
    "RAY_worker_niceness": "0",  # at 15, the default, workers lose against every other process
    "RAY_idle_worker_killing_time_threshold_ms": "600000",  # else worker starts eat a fifth of the time
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_task_oom_retries": "2",
}


TOKENIZING_THREADS = 16
"""For an actor with a GPU at the most: an H100 waits for the tokens of a small model with fewer."""
DYING: Mapping[str, Any] = {"max_restarts": 4, "max_task_retries": 2}
"""Of an actor that dies while it embeds. Ray would start it again without end, with the document that kills it."""
STDERR = 2
PRELOAD = {"preload_python_modules": ["ray.data"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What a job may take of the cluster. None is all there is; `gpus` are given to the embedding actors, one each."""

    cpus: int | None = None
    gpus: int = 0
    actors: int | None = None


EVERYTHING = Resources()


@dataclass(frozen=True, slots=True)
class RayRunner:
    settings: Settings
    resources: Resources = EVERYTHING

    def run(self, target: Target, sources: Mapping[int, Source], drafts: Sequence[Draft]) -> RunTimes:
        """On the cluster that RAY_ADDRESS names, else on one of this machine's, which goes on after the job."""
        asked = time.time()
        with native_errors_logged():
            start_ray(self.resources)
            _refuse_missing_gpus(self.resources)
            _refuse_local(target, sources)
            from jobs.stages import Publish, Work

            work = Work(settings=self.settings, target=target, sources=sources, carried=self._carried(target))
            sink = Publish(work)
            with errors_as_raised():
                _execute(sink, work, drafts, self.resources)
        return RunTimes(start=max(sink.times.start - asked, 0.0), publish=sink.times.publish)

    def _carried(self, target: Target) -> dict[str, str]:
        """A job that nobody asked for over HTTP is called by its own id."""
        from rag_core.telemetry.propagation import propagation_values

        asked = current_operation()
        return propagation_values(
            asked
            or Operation(
                name="ingest", correlation_id=str(target.job), tenant=target.tenant, profile=self.settings.profile
            )
        )


@contextmanager
def native_errors_logged() -> Iterator[None]:
    """Ray's native code writes warnings that concern nobody straight to the terminal; here they go to a file.

    A submitted job keeps them: its output is a log already.
    """
    if "RAY_ADDRESS" in os.environ:
        yield
        return
    log = home() / "logs" / "ray-driver.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    terminal = os.dup(STDERR)
    with log.open("a") as file:
        os.dup2(file.fileno(), STDERR)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(terminal, STDERR)
            os.close(terminal)


def start_ray(resources: Resources = EVERYTHING) -> None:
    """Connects to the cluster that RAY_ADDRESS names, or starts one here; at most once a process."""
    os.environ.update({key: value for key, value in ENVIRONMENT.items() if key not in os.environ})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Ray's own making
        import ray
        import ray.data

        if not ray.is_initialized():
            # "local", or it would join whatever cluster somebody has started on this machine
            local: dict[str, Any] = {"address": "local", "include_dashboard": False, "_system_config": PRELOAD}
            local |= {"num_cpus": resources.cpus} if resources.cpus else {}
            options = {} if "RAY_ADDRESS" in os.environ else local
            try:
                ray.init(log_to_driver=False, logging_level=logging.ERROR, **options)
            except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
                raise ClusterError(f"Ray cannot be {'reached' if not options else 'started'}: {error}") from error
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.execution_no_progress_timeout_s = 600
    context.target_max_block_size = OUTPUT_BYTES
    context.raise_original_map_exception = True
    limit = resources.cpus or float("inf")
    context.op_resource_reservation_ratio = RESERVED
    context.execution_options.resource_limits = ray.data.ExecutionResources.for_limits(cpu=limit)


def _execute(sink: "Publish", work: "Work", drafts: Sequence[Draft], resources: Resources) -> None:
    import ray

    from jobs.stages import Embed, Prepare

    cpus = cpus_of(resources)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Ray's own making
        (
            ray.data.from_arrow(_blocks(drafts, cpus))
            .map_batches(Prepare(work), batch_size=None, batch_format="pyarrow", num_cpus=SMALL_SHARE, concurrency=cpus)
            .map_batches(Embed, batch_format="pyarrow", **_embedding_share(resources, work, cpus), **DYING)
            .write_datasink(sink, ray_remote_args={"num_cpus": SMALL_SHARE}, concurrency=cpus)
        )


def cpus_of(resources: Resources) -> int:
    import ray

    cluster: Mapping[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    there = max(1, int(cluster.get("CPU", 1)))
    return min(there, resources.cpus or there)


def _embedding_share(resources: Resources, work: "Work", cpus: int) -> dict[str, Any]:
    """An actor a GPU, as many of them as there is work for, with its share of the CPUs for splitting texts into
    tokens; else one a CPU, but never all of any CPU: an actor pool that takes everything hangs the dataset."""
    from ray.data import ActorPoolStrategy

    if resources.gpus:
        actors = min(resources.actors or resources.gpus, resources.gpus)
        pool = ActorPoolStrategy(min_size=1, max_size=actors, max_concurrent_calls_per_actor=2)
        threads = min(max(1, cpus // actors), TOKENIZING_THREADS)
        return {
            "fn_constructor_args": (work, threads),
            "num_gpus": 1,
            "num_cpus": SMALL_SHARE,
            "batch_size": BLOCK_DOCUMENTS,
            "compute": pool,
        }
    share = 1 - SMALL_SHARE if cpus > 1 else 1 - 2 * SMALL_SHARE
    pool = ActorPoolStrategy(size=min(resources.actors or cpus, cpus))
    return {"fn_constructor_args": (work,), "num_cpus": share, "batch_size": None, "compute": pool}


def _blocks(drafts: Sequence[Draft], cpus: int) -> "list[pa.Table]":
    """Dealt out in turn, so that every block has its share of the large documents, which come first."""
    from jobs.tables import drafts_to_table

    size = sum(draft.entry.size for draft in drafts)
    count = min(len(drafts), max(ceil(len(drafts) / BLOCK_DOCUMENTS), ceil(size / BLOCK_BYTES), 4 * cpus))
    return [drafts_to_table(drafts[first::count]) for first in range(count)]


def _refuse_missing_gpus(resources: Resources) -> None:
    """Ray would wait for them, in case somebody adds them."""
    import ray

    there = int(ray.cluster_resources().get("GPU", 0))  # type: ignore[no-untyped-call]
    if resources.gpus > there:
        raise ClusterError(f"--gpus {resources.gpus} is more than Ray's cluster has: {there}")


def _refuse_local(target: Target, sources: Mapping[int, Source]) -> None:
    import ray

    nodes = ray.nodes()  # type: ignore[no-untyped-call]
    if sum(node["Alive"] for node in nodes) < 2:
        return
    if "host=/" in target.postgres.dsn:
        raise StoreError(
            "the embedded store serves one host; a Ray cluster of several nodes needs store.url to be a DSN"
        )
    for source in sources.values():
        if source.uri.startswith("file:"):
            raise SourceError(
                f"source {source.uri} is a local folder; a Ray cluster of several nodes needs a shared URI"
            )
