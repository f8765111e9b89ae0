"""The loss of nodes of a Ray cluster amid a job: what is left of the work begins again on the other nodes.

Ray repeats the tasks of a lost node, but that is not enough for actors. Their tasks use up their retries in the seconds
until the cluster has noticed the loss. And an actor that Ray starts again waits forever if the other nodes have no
free CPU for it.
"""

import logging
import time
from collections.abc import Iterable, Mapping

import stamina

from jobs.cluster_nodes import list_nodes
from rag_core.errors import ClusterError, NodeLostError
from rag_core.ingestion.watch import Check

MAX_ATTEMPTS = 6
"""The number of times that the work of a job begins: once, and after each loss of nodes."""
NOTICE_SECONDS = 60.0
"""Seconds in which the cluster notices that a node is lost. By default its health checks need up to 30."""
POLL_SECONDS = 2.0

_log = logging.getLogger(__name__)


def node_loss_attempts() -> Iterable[stamina.Attempt]:
    """Yields attempts until the `with` block of an attempt raises no ClusterError, or raises one without a node lost.

    The last attempt raises its error. Call it when Ray has started. The work of a further attempt must be safe to
    repeat: tasks of the earlier one can still run.
    """
    return stamina.retry_context(
        on=_LossesOfNodes(), attempts=MAX_ATTEMPTS, timeout=None, wait_initial=0.1, wait_jitter=0
    )


def watch_capacity(needed: Mapping[str, float]) -> Check:
    """A check that raises NodeLostError if a node was lost and the others have less than the needed resources.

    `needed` are amounts of Ray's resources that actors occupy, for example `{"CPU": 1.5}`.
    """
    nodes, checked = list_node_ids(), time.monotonic()

    def check() -> None:
        nonlocal checked
        if time.monotonic() < checked + POLL_SECONDS:
            return
        checked = time.monotonic()
        if nodes <= list_node_ids():
            return
        import ray

        available: Mapping[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        for name, amount in needed.items():
            if available.get(name, 0) < amount:
                raise NodeLostError(
                    f"the Ray cluster lost a node, and the others have {available.get(name, 0):g} {name} of "
                    f"{amount:g} that the job uses"
                )

    return check


def list_node_ids() -> frozenset[str]:
    """The nodes that the cluster takes to be alive."""
    return frozenset(node.id for node in list_nodes())


class _LossesOfNodes:
    """A predicate of errors that is true if the cluster has lost nodes since the last call."""

    def __init__(self) -> None:
        self._nodes = list_node_ids()

    def __call__(self, error: Exception) -> bool:
        """Waits until the cluster notices the loss."""
        if not isinstance(error, ClusterError) or len(self._nodes) < 2:
            return False
        deadline = time.monotonic() + NOTICE_SECONDS
        while self._nodes <= (nodes := list_node_ids()) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        lost, self._nodes = self._nodes - nodes, nodes
        if lost:
            _log.warning(
                "the Ray cluster lost %d of its nodes; the rest of the work begins again: %s", len(lost), error
            )
        return bool(lost)
