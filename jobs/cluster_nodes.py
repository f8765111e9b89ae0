"""The nodes of a Ray cluster, and functions that run on each of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from rag_core.errors import RagError, describe_error, first_line

PROBE_SECONDS = 60.0
"""The seconds that a node has for its answer, including the start of a worker process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A living node.

    A node without CPUs and GPUs, such as a head that only coordinates, runs no tasks of jobs.
    """

    id: str
    address: str
    host: str
    cpus: float
    gpus: float
    metrics_port: int

    @property
    def name(self) -> str:
        return f"{self.address} ({self.host}, {self.id[:8]})"

    @property
    def runs_tasks(self) -> bool:
        return self.cpus > 0 or self.gpus > 0


@dataclass(frozen=True, slots=True)
class Answer:
    """What a node returned. `error` is empty, or the reason why it returned nothing."""

    node: Node
    value: Any = None
    error: str = ""


def list_nodes() -> list[Node]:
    """The living nodes in the order of their addresses."""
    import ray

    rows: list[Mapping[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    nodes = [
        Node(
            id=row["NodeID"],
            address=row["NodeManagerAddress"],
            host=row["NodeManagerHostname"],
            cpus=row["Resources"].get("CPU", 0.0),
            gpus=row["Resources"].get("GPU", 0.0),
            metrics_port=row["MetricsExportPort"],
        )
        for row in rows
        if row["Alive"]
    ]
    return sorted(nodes, key=lambda node: (node.address, node.id))


def run_on_nodes(
    function: Callable[..., Any], arguments: Sequence[Any], nodes: Sequence[Node], timeout: float = PROBE_SECONDS
) -> Iterator[Answer]:
    """Runs the function once on each node, and yields the answers as they arrive.

    A node that has not answered after `timeout` seconds, or that dies, has an answer with an error.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    task: Any = ray.remote(function)
    waiting = {
        task.options(
            num_cpus=0, max_retries=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False)
        ).remote(*arguments): node
        for node in nodes
    }
    deadline = monotonic() + timeout
    while waiting:
        ready, _ = ray.wait(list(waiting), num_returns=1, timeout=max(0.0, deadline - monotonic()))
        if not ready:
            break
        yield _read_answer(ready[0], waiting.pop(ready[0]))
    for reference, node in waiting.items():
        ray.cancel(reference, force=True)
        yield Answer(node, error=f"no answer within {timeout:g} s")


def _read_answer(reference: Any, node: Node) -> Answer:
    """Anything can be raised on a node, such as an import error: it is the node's answer."""
    import ray
    from ray.exceptions import RayError, RayTaskError

    try:
        return Answer(node, ray.get(reference))
    except RayTaskError as error:
        cause = error.cause
        return Answer(node, error=str(cause) if isinstance(cause, RagError) else _summarize(cause))
    except RayError as error:
        return Answer(node, error=f"the node or its worker was lost: {first_line(error)}")


def _summarize(error: BaseException) -> str:
    return describe_error(error).strip().partition("\n")[0]
