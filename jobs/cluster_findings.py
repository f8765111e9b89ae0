"""Findings about a cluster, each with what to do: pure functions of what its nodes answered."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from jobs.cluster_nodes import Answer, Node
from jobs.machine_facts import Disk, Gpus
from jobs.package_shipping import PICKLED_DISTRIBUTIONS, NodeProgram
from jobs.shared_folders import compare_sample
from jobs.source_samples import Sample
from rag_core.storage.reachability import StoreReach

State: TypeAlias = Literal["ok", "warning", "failed"]

MAX_CLOCK_LEAD, MAX_TOLERATED_LEAD = 1.0, 30.0
"""Seconds between the clocks of a node and the store from which there is a warning, and a failure."""
MIN_FREE_GB = 2.0
MAX_USED_SHARE = 0.95
"""The used share of the disk of Ray's folder from which Ray refuses to store objects there."""
MIN_MEMORY_GB = 1.0
CLUSTER = "cluster"
"""The name in the place of a node's in findings about all nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFinding:
    """The result of one check of one node. `remedy` says what to do, and is empty if the state is `ok`."""

    node: str
    check: str
    state: State
    detail: str
    remedy: str = ""


def judge_program(program: NodeProgram) -> ClusterFinding:
    """A missing program is a warning, because a job ships it. Missing distributions are a failure."""

    def find(state: State, detail: str, remedy: str = "") -> ClusterFinding:
        return ClusterFinding(node=program.node.name, check="program", state=state, detail=detail, remedy=remedy)

    if program.error:
        return find("failed", program.error, "see the logs of the node below its folder of Ray, in session_latest/logs")
    if program.missing:
        lacking = f"lacks {', '.join(program.missing)}"
        return find("failed", lacking, "install rag-on-ray with its requirements on the node, or use an image with it")
    if program.reason:
        remedy = "jobs ship the program by themselves; install this version on the node before `serve deploy`"
        return find("warning", program.reason, remedy)
    return find("ok", f"rag-on-ray as in this process, in {program.folder}")


def judge_versions(node: str, program: Mapping[str, Any], expected: Mapping[str, Any]) -> ClusterFinding:
    """Compares two values of `describe_program`. Objects cannot be exchanged with another minor version of Python."""
    python, own_python = program["python"], expected["python"]
    versions, own_versions = program["versions"], expected["versions"]
    differing = [
        f"{name} {versions[name]}, not {own_versions[name]}"
        for name in PICKLED_DISTRIBUTIONS
        if versions.get(name) and versions[name] != own_versions[name]
    ]
    if python != own_python:
        differing.insert(0, f"Python {python}, not {own_python}")
    if not differing:
        return ClusterFinding(node=node, check="versions", state="ok", detail=f"Python {python}, as in this process")
    is_incompatible = python.rpartition(".")[0] != own_python.rpartition(".")[0]
    return ClusterFinding(
        node=node,
        check="versions",
        state="failed" if is_incompatible else "warning",
        detail="; ".join(differing),
        remedy="start all nodes and this process from the same image, or install the same versions",
    )


def judge_store(answer: Answer) -> Iterator[ClusterFinding]:
    """Findings about the store as the node reaches it, and about the node's clock."""
    node = answer.node.name
    if answer.error:
        remedy = (
            "open the way to the store for this node, and give the node what store.url needs: variables of references, "
            "files of secrets, PGPASSWORD or ~/.pgpass"
        )
        yield ClusterFinding(node=node, check="store", state="failed", detail=answer.error, remedy=remedy)
        return
    reach: StoreReach = answer.value
    encryption = "TLS" if reach.is_encrypted else "no TLS"
    detail = f"schema {reach.schema_version} of {reach.newest_version}, {encryption}, {reach.latency * 1000:.1f} ms"
    is_old = reach.schema_version < reach.newest_version
    remedy = "the next command that uses the store migrates it" if is_old else ""
    yield ClusterFinding(node=node, check="store", state="warning" if is_old else "ok", detail=detail, remedy=remedy)
    yield judge_clock(node, reach.clock_lead, reach.latency)


def judge_clock(node: str, lead: float, latency: float) -> ClusterFinding:
    state: State = "ok" if abs(lead) <= MAX_CLOCK_LEAD else "warning" if abs(lead) <= MAX_TOLERATED_LEAD else "failed"
    direction = "ahead of" if lead > 0 else "behind"
    return ClusterFinding(
        node=node,
        check="clock",
        state=state,
        detail=f"{abs(lead):.3f} s {direction} the store's, within {latency / 2:.3f} s",
        remedy="" if state == "ok" else "synchronize the clocks of the node and the store, for example by chrony",
    )


def judge_source(answer: Answer, uri: str, expected: Sample) -> ClusterFinding:
    difference = compare_sample(answer, expected)
    remedy = "mount the folder at the same path" if uri.startswith(("file:", "jsonl:file:")) else "give it access"
    return ClusterFinding(
        node=answer.node.name,
        check=f"source {uri}",
        state="failed" if difference else "ok",
        detail=difference or f"the same first {expected.entries} files as in this process",
        remedy=f"{remedy} on this node" if difference else "",
    )


def judge_machine(answer: Answer) -> Iterator[ClusterFinding]:
    """Findings about the node's disks, memory, GPUs and the gateway's port."""
    node, facts = answer.node.name, answer.value
    if answer.error:
        remedy = "mend what is wrong with the program of this node first"
        yield ClusterFinding(node=node, check="machine", state="failed", detail=answer.error, remedy=remedy)
        return
    yield _judge_disk(node, "disk of RAG_HOME", facts.home)
    yield _judge_disk(node, "disk of Ray", facts.ray)
    has_memory, is_taken = facts.memory_gb >= MIN_MEMORY_GB, facts.gateway_port == "other"
    yield ClusterFinding(
        node=node,
        check="memory",
        state="ok" if has_memory else "warning",
        detail=f"{facts.memory_gb:.1f} GB available",
        remedy="" if has_memory else "limit --concurrency, or use nodes with more memory",
    )
    yield ClusterFinding(
        node=node,
        check="gateway port",
        state="warning" if is_taken else "ok",
        detail={"free": "free", "gateway": "a gateway answers", "other": "another program uses it"}[facts.gateway_port],
        remedy="stop the other program, or serve on another port" if is_taken else "",
    )
    if answer.node.gpus or facts.gpus.names:
        yield _judge_gpus(answer.node, facts.gpus)


def judge_metrics(node: Node, error: str) -> ClusterFinding:
    return ClusterFinding(
        node=node.name,
        check="metrics port",
        state="warning" if error else "ok",
        detail=f"port {node.metrics_port}: {error}" if error else f"port {node.metrics_port} answers",
        remedy="start the node with a free --metrics-export-port, and open it to Prometheus" if error else "",
    )


def _judge_disk(node: str, check: str, disk: Disk) -> ClusterFinding:
    """A full disk of Ray's folder fails jobs: Ray then stores no objects."""
    is_full = disk.used_share >= MAX_USED_SHARE and check == "disk of Ray"
    state: State = "failed" if is_full else "ok" if disk.free_gb >= MIN_FREE_GB else "warning"
    detail = f"{disk.free_gb:.1f} GB free at {disk.path}, {disk.used_share:.0%} used"
    remedy = "" if state == "ok" else "free space there, or choose another disk (RAG_HOME, `ray start --temp-dir`)"
    return ClusterFinding(node=node, check=check, state=state, detail=detail, remedy=remedy)


def _judge_gpus(node: Node, gpus: Gpus) -> ClusterFinding:
    """PyTorch must see as many GPUs as Ray hands out, and vLLM must be importable if it is installed."""
    vllm = f"vLLM {gpus.vllm}" if gpus.vllm else "no vLLM"
    state: State = "ok" if gpus.vllm else "warning"
    remedy = "" if gpus.vllm else "install the extra [vllm] if language models are to run on this node"
    if gpus.visible < max(node.gpus, 1) or gpus.errors:
        state, remedy = "failed", "install a driver and a PyTorch that fit each other, or lower --num-gpus of the node"
    detail = "; ".join([*gpus.names, f"PyTorch sees {max(gpus.visible, 0)}", vllm, *gpus.errors])
    return ClusterFinding(node=node.name, check="gpus", state=state, detail=detail, remedy=remedy)


def judge_environment(environments: Mapping[str, Mapping[str, str]]) -> ClusterFinding:
    """Compares the hashed variables of the nodes, by the names of the nodes.

    RAY_SERVE_* must be equal for Serve. Other variables can be meant to differ, so that is a warning.
    """
    names = sorted({name for variables in environments.values() for name in variables})
    differing = [name for name in names if len({variables.get(name) for variables in environments.values()}) > 1]
    if not differing:
        detail = f"{len(names)} variables RAY_SERVE_* and RAG_* are equal on all nodes"
        return ClusterFinding(node=CLUSTER, check="environment", state="ok", detail=detail)
    lines = [f"{name} ({_describe_variable(name, environments)})" for name in differing]
    return ClusterFinding(
        node=CLUSTER,
        check="environment",
        state="failed" if any(name.startswith("RAY_SERVE_") for name in differing) else "warning",
        detail=f"differs between nodes: {'; '.join(lines)}",
        remedy="set the variables to the same values before `ray start` on all nodes",
    )


def _describe_variable(name: str, environments: Mapping[str, Mapping[str, str]]) -> str:
    without = [node for node, variables in environments.items() if name not in variables]
    return f"missing on {', '.join(without)}" if without else "different values"


def soften_finding(finding: ClusterFinding, nodes: Sequence[Node]) -> ClusterFinding:
    """Turns the failure of a node without CPUs and GPUs into a warning: no task of a job runs there."""
    is_idle = any(node.name == finding.node and not node.runs_tasks for node in nodes)
    if finding.state != "failed" or not is_idle:
        return finding
    detail = f"{finding.detail}; the node has no CPUs, so jobs do not run there"
    return replace(finding, state="warning", detail=detail)
