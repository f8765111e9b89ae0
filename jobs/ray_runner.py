"""Ingestion on Ray Data: one streaming pipeline of three operators, for a corpus of any size."""

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Any, ClassVar

from jobs.cluster_nodes import list_nodes
from jobs.node_loss import node_loss_attempts, watch_capacity
from jobs.package_shipping import join_cluster
from jobs.ray_connection import UNLIMITED, Resources
from jobs.ray_errors import translate_ray_errors
from jobs.shared_folders import check_folders
from rag_core.config import Settings
from rag_core.errors import ClusterError, StoreError
from rag_core.ingestion.containers.uris import container_uri
from rag_core.ingestion.report import RunTimes
from rag_core.ingestion.watch import Check, never_stop
from rag_core.protocols import Source
from rag_core.storage.embedded import rag_home
from rag_core.storage.ledger import Ledger
from rag_core.storage.postgres import retry_attempts
from rag_core.storage.publishing import WriteTarget
from rag_core.telemetry.operation import Operation, current_operation
from rag_core.types import Draft

if TYPE_CHECKING:
    from jobs.stages import JobSpec, Publish

BLOCK_DOCUMENTS = 128
BLOCK_BYTES = 512 * 1024
"""The size of a block, in documents and in bytes of their files.

An embedding actor takes one block at a time, and progress advances by blocks. Scheduling a block costs some 30 ms.
"""
LIGHT_TASK_CPUS = 0.25
"""The CPUs of a task that reads or publishes; an embedding actor next to it has the rest of its CPU.

There are never more such tasks than CPUs, even without actors: each process costs some 150 MB, and a second to start.
"""

MAX_TOKENIZING_THREADS = 16
"""Threads of an actor with a GPU. With fewer, an H100 waits for the tokens of a small model."""
RESTART_LIMITS: Mapping[str, Any] = {"max_restarts": 4, "max_task_retries": 2}
"""Limits for an actor that dies while it embeds. Without them, Ray would restart it forever on the same document."""
STDERR = 2


@dataclass(frozen=True, slots=True)
class RayRunner:
    settings: Settings
    resources: Resources = UNLIMITED

    def run(
        self,
        target: WriteTarget,
        sources: Mapping[int, Source],
        drafts: Sequence[Draft],
        check: Check = never_stop,
    ) -> RunTimes:
        """Processes the drafts on the cluster that RAY_ADDRESS names, else on a local one, which outlives the job."""
        requested = time.time()
        from rag_core.telemetry.propagation import propagation_values

        # without a request over HTTP, the job's id is its correlation id
        operation = current_operation() or Operation(
            name="ingest", correlation_id=str(target.job), tenant=target.tenant, profile=self.settings.profile
        )
        with redirect_native_errors():
            join_cluster(self.resources)
            check()
            _check_cluster(self.resources, target, sources, self.settings.ingestion.shared_folders)
            from jobs.stages import JobSpec, Publish

            spec = JobSpec(self.settings, target, sources, propagation_values(operation))
            sink = Publish(spec)
            for attempt in node_loss_attempts():
                with attempt:
                    if remaining := drafts if attempt.num == 1 else _list_remaining(target, drafts):
                        _run_pipeline(sink, spec, remaining, self.resources, check)
        return RunTimes(start=max(sink.times.start - requested, 0.0), publish=sink.times.publish)


def _list_remaining(target: WriteTarget, drafts: Sequence[Draft]) -> Sequence[Draft]:
    """The drafts that the job has not yet finished."""
    for attempt in retry_attempts(target.store_timeout, StoreError):
        with attempt, target.postgres.connect() as connection:
            finished = Ledger(connection, target.tenant).list_finished(target.job)
    return [draft for draft in drafts if draft.id not in finished]


class StopExecution:
    """A callback that stops a dataset if `check` raises an error. Ray Data has no public base class for it.

    Ray Data creates the callbacks of a dataset itself, and pickles their class. So `check` is set on the class.
    """

    check: ClassVar[Check] = staticmethod(never_stop)

    def before_execution_starts(self, executor: Any) -> None:
        """Makes the executor kill its actors after an error.

        Ray Data would only drop their handles. An actor whose results are still referenced, by the traceback of the
        error for example, would then keep its CPUs, and the next job would wait for them forever.
        """
        executor.shutdown = partial(_shut_down, executor.shutdown)

    def on_execution_step(self, executor: Any) -> None:  # noqa: ARG002 - Ray passes it
        """Runs some ten times a second."""
        StopExecution.check()

    def after_execution_succeeds(self, executor: Any) -> None: ...

    def after_execution_fails(self, executor: Any, error: Exception) -> None: ...


def _shut_down(shutdown: Callable[..., None], force: bool, exception: Exception | None = None) -> None:
    shutdown(force=force or exception is not None, exception=exception)


@contextmanager
def stop_execution(check: Check) -> Iterator[None]:
    """Makes the datasets of the block stop with the error that `check` raises."""
    from ray.data import DataContext

    context = DataContext.get_current()
    context.custom_execution_callback_classes = [StopExecution]  # type: ignore[list-item]
    StopExecution.check = staticmethod(check)
    try:
        yield
    finally:
        context.custom_execution_callback_classes = []
        StopExecution.check = staticmethod(never_stop)


@contextmanager
def redirect_native_errors() -> Iterator[None]:
    """Redirects standard error to a file: Ray's native code writes warnings there that no user needs.

    Ray's messages about dead processes follow: it prints them on standard output, where they would break `--json`.
    A submitted job keeps its standard error, because its output is a log already.
    """
    from ray._private import worker

    worker.print_to_stdstream = _print_to_stderr  # type: ignore[assignment]
    if "RAY_ADDRESS" in os.environ:
        yield
        return
    log = rag_home() / "logs" / "ray-driver.log"
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


def _print_to_stderr(message: dict[str, Any], ignore_prefix: bool) -> None:  # noqa: ARG001 - Ray passes it
    """Replaces `print_to_stdstream` of Ray."""
    print(*message["lines"], sep="\n", file=sys.stderr, flush=True)


def count_cpus(resources: Resources) -> int:
    """The CPUs of the cluster that the job can use."""
    import ray

    cluster: Mapping[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    cluster_cpus = max(1, int(cluster.get("CPU", 1)))
    return min(cluster_cpus, resources.cpus or cluster_cpus)


def actor_cpus(cpus: int) -> float:
    """The CPUs of each actor if there is one actor per CPU. The pipeline hangs if actors take all of every CPU."""
    return 1 - LIGHT_TASK_CPUS if cpus > 1 else 1 - 2 * LIGHT_TASK_CPUS


def _check_cluster(
    resources: Resources, target: WriteTarget, sources: Mapping[int, Source], shared_folders: bool
) -> None:
    """Raises ClusterError if GPUs are missing, because Ray would wait until they are added.

    Raises StoreError or SourceError if some nodes of the cluster cannot reach the store or a source. Local folders are
    not compared if `shared_folders` is true.
    """
    import ray

    cluster_gpus = int(ray.cluster_resources().get("GPU", 0))  # type: ignore[no-untyped-call]
    if resources.gpus > cluster_gpus:
        raise ClusterError(
            f"--gpus must be at most {cluster_gpus}, the number of GPUs of the Ray cluster, got {resources.gpus}"
        )
    nodes = list_nodes()
    if len(nodes) < 2:
        return
    if "host=/" in target.postgres.read_dsn():
        raise StoreError(
            "the embedded store serves one host; a Ray cluster of several nodes needs store.url to be a DSN"
        )
    if not shared_folders:
        check_folders(sources.values(), nodes)


def _run_pipeline(
    sink: "Publish", spec: "JobSpec", drafts: Sequence[Draft], resources: Resources, check: Check
) -> None:
    import ray

    from jobs.draft_tables import drafts_to_table
    from jobs.stages import Embed, Prepare

    cpus = count_cpus(resources)
    size = sum(draft.entry.size for draft in drafts)
    count = min(len(drafts), max(ceil(len(drafts) / BLOCK_DOCUMENTS), ceil(size / BLOCK_BYTES), 4 * cpus))
    blocks = [drafts_to_table(block) for block in split_into_blocks(drafts, count)]
    check_capacity = watch_capacity(_actor_resources(resources, cpus))

    def check_all() -> None:
        check()
        check_capacity()

    with translate_ray_errors(), stop_execution(check_all), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own code causes the warnings
        (
            ray.data.from_arrow(blocks)
            .map_batches(
                Prepare(spec), batch_size=None, batch_format="pyarrow", num_cpus=LIGHT_TASK_CPUS, concurrency=cpus
            )
            .map_batches(Embed, batch_format="pyarrow", **_embed_arguments(resources, spec, cpus), **RESTART_LIMITS)
            .write_datasink(sink, ray_remote_args={"num_cpus": LIGHT_TASK_CPUS}, concurrency=cpus)
        )


def split_into_blocks(drafts: Sequence[Draft], count: int) -> list[list[Draft]]:
    """Deals the drafts to blocks in turn: the large drafts are first, and each block should get some of them.

    Members of containers are dealt as runs of neighbours, so that a container is opened for few blocks.
    """
    members = [draft for draft in drafts if container_uri(draft.entry.uri)]
    others = [draft for draft in drafts if not container_uri(draft.entry.uri)]
    run = ceil(len(members) / count)
    blocks = (others[first::count] + members[first * run : (first + 1) * run] for first in range(count))
    return [block for block in blocks if block]


def _actor_resources(resources: Resources, cpus: int) -> Mapping[str, float]:
    """The amounts of Ray's resources that all embedding actors occupy together."""
    if resources.gpus:
        return {"GPU": min(resources.actors or resources.gpus, resources.gpus)}
    return {"CPU": min(resources.actors or cpus, cpus) * actor_cpus(cpus)}


def _embed_arguments(resources: Resources, spec: "JobSpec", cpus: int) -> dict[str, Any]:
    """The arguments of `map_batches` for the embedding actors: one actor per GPU, else one per CPU.

    With GPUs, the pool grows with the work, and each actor has its share of the CPUs as threads for tokenizing.
    """
    from ray.data import ActorPoolStrategy

    if resources.gpus:
        actors = min(resources.actors or resources.gpus, resources.gpus)
        pool = ActorPoolStrategy(min_size=1, max_size=actors, max_concurrent_calls_per_actor=2)
        threads = min(max(1, cpus // actors), MAX_TOKENIZING_THREADS)
        return {
            "fn_constructor_args": (spec, threads),
            "num_gpus": 1,
            "num_cpus": LIGHT_TASK_CPUS,
            "batch_size": BLOCK_DOCUMENTS,
            "compute": pool,
        }
    pool = ActorPoolStrategy(size=min(resources.actors or cpus, cpus))
    return {"fn_constructor_args": (spec,), "num_cpus": actor_cpus(cpus), "batch_size": None, "compute": pool}
