"""The findings about a cluster: what is a failure, what is a warning, and what to do about it."""

from collections.abc import Mapping
from typing import Any

import pytest

from jobs.cluster_findings import (
    CLUSTER,
    judge_clock,
    judge_environment,
    judge_machine,
    judge_metrics,
    judge_program,
    judge_source,
    judge_store,
    judge_versions,
    soften_finding,
)
from jobs.cluster_nodes import Answer, Node
from jobs.machine_facts import Disk, Gpus, MachineFacts, PortState
from jobs.package_shipping import NodeProgram
from jobs.source_samples import Sample
from rag_core.storage.reachability import StoreReach

NODE = Node(id="a" * 56, address="10.0.0.2", host="worker", cpus=4, gpus=0, metrics_port=8080)
GPU_NODE = Node(id="b" * 56, address="10.0.0.3", host="gpu", cpus=4, gpus=2, metrics_port=8080)
IDLE_NODE = Node(id="c" * 56, address="10.0.0.1", host="head", cpus=0, gpus=0, metrics_port=8080)
ROOMY = Disk(path="/var/lib/rag", free_gb=50.0, used_share=0.5)


def machine(
    home: Disk = ROOMY, ray: Disk = ROOMY, memory_gb: float = 8.0, port: PortState = "free", gpus: Gpus | None = None
) -> MachineFacts:
    return MachineFacts(home=home, ray=ray, memory_gb=memory_gb, gpus=gpus or Gpus(), gateway_port=port, environment={})


def machine_states(node: Node, facts: MachineFacts) -> dict[str, str]:
    return {finding.check: finding.state for finding in judge_machine(Answer(node, facts))}


def reach(schema_version: int = 31, is_encrypted: bool = True, clock_lead: float = 0.0) -> StoreReach:
    return StoreReach(
        schema_version=schema_version,
        newest_version=31,
        is_encrypted=is_encrypted,
        latency=0.002,
        clock_lead=clock_lead,
    )


@pytest.mark.parametrize(
    ("program", "state", "detail"),
    [
        (NodeProgram(node=NODE, folder="/opt/rag"), "ok", "rag-on-ray as in this process, in /opt/rag"),
        (NodeProgram(node=NODE, reason="rag-on-ray is not installed"), "warning", "rag-on-ray is not installed"),
        (NodeProgram(node=NODE, missing=("torch", "xlrd"), reason="x"), "failed", "lacks torch, xlrd"),
        (NodeProgram(node=NODE, error="no answer within 60 s"), "failed", "no answer within 60 s"),
    ],
)
def test_a_program_can_be_shipped_but_its_requirements_cannot(program: NodeProgram, state: str, detail: str) -> None:
    finding = judge_program(program)
    assert (finding.state, finding.detail) == (state, detail)
    assert bool(finding.remedy) == (state != "ok")


@pytest.mark.parametrize(
    ("python", "torch", "state", "detail"),
    [
        ("3.11.7", "2.13.0", "ok", "Python 3.11.7, as in this process"),
        ("3.11.9", "2.13.0", "warning", "Python 3.11.9, not 3.11.7"),
        ("3.11.7", "2.12.0", "warning", "torch 2.12.0, not 2.13.0"),
        ("3.12.1", "2.12.0", "failed", "Python 3.12.1, not 3.11.7; torch 2.12.0, not 2.13.0"),
        ("3.11.7", "", "ok", "Python 3.11.7, as in this process"),  # the finding about the program names it
    ],
)
def test_only_another_minor_version_of_python_is_a_failure(python: str, torch: str, state: str, detail: str) -> None:
    expected = {"python": "3.11.7", "versions": {"torch": "2.13.0", "xlrd": "2.0.2"}}
    finding = judge_versions("n", {"python": python, "versions": {"torch": torch, "xlrd": "2.0.1"}}, expected)
    assert (finding.state, finding.detail) == (state, detail)


@pytest.mark.parametrize(
    ("lead", "state", "detail"),
    [
        (0.9, "ok", "0.900 s ahead of the store's, within 0.001 s"),
        (-1.5, "warning", "1.500 s behind the store's, within 0.001 s"),
        (30.0, "warning", "30.000 s ahead of the store's, within 0.001 s"),
        (-31.0, "failed", "31.000 s behind the store's, within 0.001 s"),
    ],
)
def test_clocks_can_differ_by_a_second(lead: float, state: str, detail: str) -> None:
    finding = judge_clock("n", lead, latency=0.002)
    assert (finding.state, finding.detail) == (state, detail)


def test_a_store_is_reachable_old_or_out_of_reach() -> None:
    store, clock = judge_store(Answer(NODE, reach()))
    assert (store.state, store.detail) == ("ok", "schema 31 of 31, TLS, 2.0 ms")
    assert clock.state == "ok"
    old, _ = judge_store(Answer(NODE, reach(schema_version=30, is_encrypted=False)))
    assert (old.state, old.detail) == ("warning", "schema 30 of 31, no TLS, 2.0 ms")
    (lost,) = judge_store(Answer(NODE, error="cannot reach the store"))
    assert (lost.state, lost.detail) == ("failed", "cannot reach the store")


@pytest.mark.parametrize(
    ("answer", "detail"),
    [
        (Answer(NODE, Sample(3, "x")), "the same first 3 files as in this process"),
        (Answer(NODE, Sample(2, "y")), "2 files, not 3"),
        (Answer(NODE, Sample(3, "y")), "files with other names, sizes or times"),
        (Answer(NODE, error="'/docs' cannot be listed"), "'/docs' cannot be listed"),
    ],
)
def test_a_source_must_have_the_same_files_on_every_node(answer: Answer, detail: str) -> None:
    finding = judge_source(answer, "file:///docs", Sample(3, "x"))
    assert (finding.check, finding.detail) == ("source file:///docs", detail)
    assert finding.state == ("ok" if detail.startswith("the same") else "failed")


def test_a_machine_needs_space_memory_and_the_port_of_the_gateway() -> None:
    everything = {"disk of RAG_HOME": "ok", "disk of Ray": "ok", "memory": "ok", "gateway port": "ok"}
    assert machine_states(NODE, machine()) == everything
    assert machine_states(NODE, machine(port="gateway")) == everything
    full = Disk(path="/var/ray", free_gb=10.0, used_share=0.96)
    assert machine_states(NODE, machine(ray=full)) == {**everything, "disk of Ray": "failed"}
    assert machine_states(NODE, machine(home=full)) == everything
    small = Disk(path="/var/lib/rag", free_gb=1.9, used_share=0.5)
    assert machine_states(NODE, machine(home=small)) == {**everything, "disk of RAG_HOME": "warning"}
    assert machine_states(NODE, machine(memory_gb=0.9)) == {**everything, "memory": "warning"}
    assert machine_states(NODE, machine(port="other")) == {**everything, "gateway port": "warning"}
    (finding,) = judge_machine(Answer(NODE, error="ModuleNotFoundError: No module named 'jobs'"))
    assert finding.state == "failed"


@pytest.mark.parametrize(
    ("gpus", "state"),
    [
        (Gpus(names=("H100, 80 GB", "H100, 80 GB"), visible=2, vllm="0.20.1"), "ok"),
        (Gpus(names=("H100, 80 GB", "H100, 80 GB"), visible=2), "warning"),
        (Gpus(names=("H100, 80 GB",), visible=1, vllm="0.20.1"), "failed"),  # Ray hands out two
        (Gpus(names=("H100", "H100"), visible=2, errors=("vllm: ImportError: libcudart",)), "failed"),
        (Gpus(), "failed"),
    ],
)
def test_pytorch_must_see_the_gpus_of_ray(gpus: Gpus, state: str) -> None:
    assert machine_states(GPU_NODE, machine(gpus=gpus))["gpus"] == state


def test_metrics_that_do_not_answer_are_a_warning() -> None:
    assert judge_metrics(NODE, "").state == "ok"
    assert judge_metrics(NODE, "[Errno 111] Connection refused").state == "warning"


@pytest.mark.parametrize(
    ("environments", "state", "detail"),
    [
        ({"a": {"RAG_X": "1"}, "b": {"RAG_X": "1"}}, "ok", "1 variables RAY_SERVE_* and RAG_* are equal on all nodes"),
        ({"a": {"RAG_X": "1"}, "b": {"RAG_X": "2"}}, "warning", "RAG_X (different values)"),
        ({"a": {"RAY_SERVE_X": "1"}, "b": {}}, "failed", "RAY_SERVE_X (missing on b)"),
    ],
)
def test_the_variables_of_serve_must_be_equal(
    environments: Mapping[str, Mapping[str, str]], state: str, detail: str
) -> None:
    finding = judge_environment(environments)
    assert (finding.node, finding.state) == (CLUSTER, state)
    assert detail in finding.detail


def test_a_failure_of_a_node_that_runs_no_tasks_is_a_warning() -> None:
    nodes: list[Any] = [NODE, IDLE_NODE]
    failed = judge_program(NodeProgram(node=IDLE_NODE, missing=("torch",)))
    assert soften_finding(failed, nodes).state == "warning"
    assert soften_finding(judge_program(NodeProgram(node=NODE, missing=("torch",))), nodes).state == "failed"
