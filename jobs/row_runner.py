"""The same work for many rows, for evaluation: in this process, or in actors of Ray Data."""

import os
import pickle
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from jobs.ingest import RunnerName
from jobs.node_loss import node_loss_attempts, watch_capacity
from jobs.package_shipping import join_cluster
from jobs.ray_connection import UNLIMITED
from jobs.ray_errors import translate_ray_errors
from jobs.ray_runner import actor_cpus, count_cpus, redirect_native_errors, stop_execution
from jobs.telemetry import flush_spans, start_tracing
from rag_core.telemetry.propagation import continuing_operation, outgoing_values

Row = TypeVar("Row")
InputRow = TypeVar("InputRow", contravariant=True)
Outcome = TypeVar("Outcome", covariant=True)

MAX_BATCH_ROWS = 32
"""The number of rows that an actor gets at a time. Progress advances in steps of this size, and a kill loses them."""
MIN_BATCHES = 4
"""The number of batches of each actor if there are fewer rows, but a batch has enough rows for all its threads."""
MIN_ROWS_TO_START_RAY = 2_000
"""The number of rows from which `auto` uses Ray. This process finishes fewer before Ray would have started."""
MIN_ROWS_FOR_A_CLUSTER = 200
"""The same limit if a cluster is already running, so that only the actors must start."""
ROW_SPAN = "question"
ACTOR_ROLE = "evaluate-worker"
NO_OPERATION: Mapping[str, str] = {}
ROWS = pa.schema([("row", pa.large_binary())])


class RowTask(Protocol[InputRow, Outcome]):
    """The work for each row. It is pickled, and run by `callers` threads of each process."""

    @property
    def callers(self) -> int: ...

    def open(self) -> AbstractContextManager[Callable[[InputRow], Outcome]]:
        """Loads what the work needs, and returns the work."""
        ...


def run_rows(task: RowTask[Row, Outcome], rows: Sequence[Row], runner: RunnerName) -> Iterator[Outcome]:
    """Yields the outcomes as they are complete, in any order. `auto` uses Ray for many rows.

    Each row is a span of the current operation's trace.
    """
    min_rows = MIN_ROWS_FOR_A_CLUSTER if "RAY_ADDRESS" in os.environ else MIN_ROWS_TO_START_RAY
    inline = len(rows) < min_rows if runner is RunnerName.auto else runner is RunnerName.inline
    return (_run_inline if inline else _run_on_ray)(task, rows, outgoing_values())


def _run_inline(task: RowTask[Row, Outcome], rows: Sequence[Row], values: Mapping[str, str]) -> Iterator[Outcome]:
    finished: SimpleQueue[Future[Outcome]] = SimpleQueue()  # in the order of completion: a slow row holds back no other
    with task.open() as run, ThreadPoolExecutor(task.callers) as threads:
        try:
            for row in rows:
                threads.submit(_run_traced, values, run, row).add_done_callback(finished.put)
            for _ in rows:
                yield finished.get().result()
        finally:
            threads.shutdown(wait=False, cancel_futures=True)


def _run_traced(values: Mapping[str, str], run: Callable[[Row], Outcome], row: Row) -> Outcome:
    with continuing_operation(values, ROW_SPAN):
        return run(row)


def _run_on_ray(task: RowTask[Row, Outcome], rows: Sequence[Row], values: Mapping[str, str]) -> Iterator[Outcome]:
    with redirect_native_errors():
        join_cluster()
        remaining = dict(enumerate(rows))
        for attempt in node_loss_attempts():
            with attempt:
                for number, outcome in _stream_outcomes(task, dict(remaining), values):
                    del remaining[number]
                    yield outcome


def _stream_outcomes(
    task: RowTask[Row, Outcome], rows: Mapping[int, Row], values: Mapping[str, str]
) -> Iterator[tuple[int, Outcome]]:
    """Yields the outcomes of numbered rows as they are complete."""
    import ray

    cpus = count_cpus(UNLIMITED)
    size = min(MAX_BATCH_ROWS, max(task.callers, len(rows) // (MIN_BATCHES * cpus)))
    table = pa.table({"row": list(map(pickle.dumps, rows.values()))}, schema=ROWS)
    table = table.append_column("number", pa.array(rows, pa.int64()))
    blocks = [table.slice(first, size) for first in range(0, len(table), size)]
    actors = min(cpus, len(blocks))
    check_capacity = watch_capacity({"CPU": actors * actor_cpus(cpus)})
    with translate_ray_errors(), stop_execution(check_capacity), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own code causes the warnings
        outcomes = ray.data.from_arrow(blocks).map_batches(
            RowActor,
            fn_constructor_args=(task, values),
            batch_format="pyarrow",
            batch_size=None,
            num_cpus=actor_cpus(cpus),
            compute=ray.data.ActorPoolStrategy(size=actors),
        )
        # prefetching would hold back finished rows
        batches: Iterator[Any] = iter(
            outcomes.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0)
        )
        for batch in batches:
            yield from zip(batch["number"].to_pylist(), map(pickle.loads, batch["outcome"].to_pylist()), strict=True)


class RowActor:
    """An actor that holds what the work needs, such as models. `values` are those of the caller's operation."""

    def __init__(self, task: RowTask[Any, Any], values: Mapping[str, str] = NO_OPERATION) -> None:
        self._values, self._resources = values, ExitStack()
        if values and start_tracing(ACTOR_ROLE):
            self._resources.callback(flush_spans, ACTOR_ROLE)
        self._run = self._resources.enter_context(task.open())
        self._threads = self._resources.enter_context(ThreadPoolExecutor(task.callers))

    def __call__(self, batch: pa.Table) -> pa.Table:
        """The column `outcome` in place of `row`; other columns stay."""
        run = partial(_run_traced, self._values, self._run)
        outcomes = self._threads.map(run, map(pickle.loads, batch["row"].to_pylist()))
        column = pa.array(map(pickle.dumps, outcomes), pa.large_binary())
        return batch.drop_columns("row").append_column("outcome", column)

    def __del__(self) -> None:
        """Closes the resources. Ray Data deletes this object when it no longer needs the actor."""
        self._resources.close()
