"""Nodes that are lost amid a job, on a cluster that only lists its nodes."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import ray

from jobs import node_loss
from jobs.node_loss import MAX_ATTEMPTS, node_loss_attempts, watch_capacity
from rag_core.errors import ClusterError, NodeLostError, StoreError


@dataclass
class Cluster:
    """Nodes by name, with a CPU each."""

    alive: list[str] = field(default_factory=lambda: ["head", "one", "two"])

    def list_ids(self) -> frozenset[str]:
        return frozenset(self.alive)

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": float(len(self.alive))}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = Cluster()
    monkeypatch.setattr(node_loss, "list_node_ids", cluster.list_ids)
    monkeypatch.setattr(ray, "cluster_resources", cluster.cluster_resources)
    monkeypatch.setattr(node_loss, "NOTICE_SECONDS", 0.0)
    monkeypatch.setattr(node_loss, "POLL_SECONDS", 0.0)
    return cluster


def run(work: Callable[[int], object]) -> None:
    """Runs the work, with the number of the attempt."""
    for attempt in node_loss_attempts():
        with attempt:
            work(attempt.num)


def test_work_begins_again_after_each_loss_of_a_node(cluster: Cluster) -> None:
    attempts = list[int]()

    def lose_a_node_twice(number: int) -> None:
        attempts.append(number)
        if number < 3:
            cluster.alive.pop()
            raise ClusterError("lost")

    run(lose_a_node_twice)
    assert attempts == [1, 2, 3]


@pytest.mark.parametrize("error", [ClusterError("a worker died"), StoreError("away")])
def test_an_error_without_a_lost_node_is_raised_at_once(cluster: Cluster, error: Exception) -> None:
    attempts = list[int]()

    def fail(number: int) -> None:
        attempts.append(number)
        raise error

    with pytest.raises(type(error)):
        run(fail)
    assert attempts == [1]


def test_another_error_than_that_of_the_cluster_is_raised_although_a_node_was_lost(cluster: Cluster) -> None:
    def fail(_number: int) -> None:
        cluster.alive.pop()
        raise StoreError("away")

    with pytest.raises(StoreError):
        run(fail)
    assert cluster.alive == ["head", "one"]


def test_attempts_are_limited(cluster: Cluster) -> None:
    attempts = list[int]()

    def replace_a_node(number: int) -> None:
        attempts.append(number)
        cluster.alive = ["head", ("one", "two")[number % 2]]
        raise ClusterError("lost")

    with pytest.raises(ClusterError):
        run(replace_a_node)
    assert len(attempts) == MAX_ATTEMPTS


def test_a_loss_is_reported_only_if_the_actors_do_not_fit_on_the_other_nodes(cluster: Cluster) -> None:
    fits, does_not_fit = watch_capacity({"CPU": 2.0}), watch_capacity({"CPU": 2.25})
    does_not_fit()
    cluster.alive.remove("one")
    fits()
    with pytest.raises(NodeLostError, match=r"^the Ray cluster lost a node, and the others have 2 CPU of 2\.25"):
        does_not_fit()


def test_a_cluster_that_only_grew_lost_nothing(cluster: Cluster) -> None:
    check = watch_capacity({"CPU": 9.0})
    cluster.alive.append("three")
    check()
