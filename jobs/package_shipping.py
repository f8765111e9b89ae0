"""Shipping of the program to the nodes of a cluster that lack it, or have other code."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any

from jobs import node_program
from jobs.cluster_nodes import PROBE_SECONDS, Answer, Node, list_nodes, run_on_nodes
from jobs.node_program import describe_program, find_version
from jobs.ray_connection import UNLIMITED, Resources, start_ray
from jobs.submitted_job import read_runtime_env
from rag_core.errors import ClusterError

SHIPPED_PACKAGES = ("rag_core", "jobs")
"""The packages that tasks import."""
PICKLED_DISTRIBUTIONS = (
    *("ray", "numpy", "pyarrow", "pydantic", "psycopg"),
    *("torch", "transformers", "sentence-transformers"),
)
"""The distributions whose objects travel between processes, or whose version changes vectors."""
EXCLUDES = {"excludes": ["**/__pycache__/**"]}
REQUIREMENT_NAME = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeProgram:
    """The program on a node, compared with that of this process.

    `reason` is why the program must be shipped to the node, or empty. `missing` are the distributions that the program
    requires and the node lacks; they are not shipped. `error` is why the node could not be asked, or empty.
    """

    node: Node
    folder: str = ""
    reason: str = ""
    missing: tuple[str, ...] = ()
    error: str = ""


def join_cluster(resources: Resources = UNLIMITED) -> None:
    """Connects as `start_ray` does. Ships the program if nodes of the cluster lack it or have other code.

    Raises ClusterError if nodes lack distributions that the program requires, or if the program cannot be shipped.
    """
    start_ray(resources)
    if "RAY_ADDRESS" not in os.environ:
        return
    programs = compare_programs([node for node in list_nodes() if node.runs_tasks])
    if programs and all(program.error for program in programs):
        raise ClusterError(f"no node of the cluster runs tasks: {programs[0].node.name}: {programs[0].error}")
    refuse_missing(programs)
    if describe_reasons(programs):
        ship_program(programs, resources)


def compare_programs(nodes: Sequence[Node], timeout: float = PROBE_SECONDS) -> list[NodeProgram]:
    """Compares the programs of the nodes with that of this process. Each node has `timeout` seconds for its answer."""
    expected = describe_program(SHIPPED_PACKAGES, list_distributions())
    return [compare_program(answer, expected) for answer in request_programs(nodes, timeout)]


def request_programs(nodes: Sequence[Node], timeout: float) -> Iterator[Answer]:
    """Yields the `describe_program` of each node, including those that lack the program."""
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(node_program)  # type: ignore[no-untyped-call]
    return run_on_nodes(describe_program, [SHIPPED_PACKAGES, list_distributions()], nodes, timeout)


def compare_program(answer: Answer, expected: Mapping[str, Any]) -> NodeProgram:
    if answer.error:
        return NodeProgram(node=answer.node, error=answer.error)
    program, reason = answer.value, ""
    if not program["digest"]:
        reason = "rag-on-ray is not installed"
    elif program["digest"] != expected["digest"]:
        reason = f"{program['folder']} has other code than this process"
    return NodeProgram(
        node=answer.node,
        folder=program["folder"],
        reason=reason,
        missing=tuple(name for name, installed in program["versions"].items() if not installed),
    )


def list_distributions() -> list[str]:
    """The distributions that the program requires without extras, as far as this process has them."""
    try:
        requirements = requires("rag-on-ray") or []
    except PackageNotFoundError:  # the program runs from a folder
        requirements = []
    names = [match[0] for text in requirements if "extra ==" not in text and (match := REQUIREMENT_NAME.match(text))]
    return [name for name in sorted({*names, *PICKLED_DISTRIBUTIONS}) if find_version(name)]


def refuse_missing(programs: Sequence[NodeProgram]) -> None:
    """Raises ClusterError for the nodes that lack distributions."""
    lacking = [f"{program.node.name} lacks {', '.join(program.missing)}" for program in programs if program.missing]
    if lacking:
        raise ClusterError(
            f"nodes of the cluster lack packages that rag-on-ray requires: {'; '.join(lacking)}; install rag-on-ray "
            "with its requirements there, or start the nodes from an image that has them"
        )


def ship_program(programs: Sequence[NodeProgram], resources: Resources, timeout: float = PROBE_SECONDS) -> None:
    """Connects anew, with the program in the job's runtime environment. Ray caches it by its content.

    Only the nodes that needed the program are asked whether they have it now, each for `timeout` seconds. Nothing that
    a submitted job has in its environment is replaced. Raises ClusterError if the process cannot connect anew, because
    it is a worker of Ray, if the environment has `py_modules` already, or if nodes still lack files.
    """
    import ray

    submitted, reasons = read_runtime_env(), describe_reasons(programs)
    if ray.get_runtime_context().worker.mode != ray.SCRIPT_MODE:
        raise ClusterError(f"rag-on-ray cannot be shipped by a worker of Ray ({reasons}): install it on these nodes")
    if "py_modules" in submitted:
        raise ClusterError(
            f"the job's runtime_env has py_modules, so rag-on-ray cannot be added to it ({reasons}): add rag_core and "
            "jobs to py_modules, or install rag-on-ray on these nodes"
        )
    ray.shutdown()
    start_ray(resources, {"py_modules": list_package_folders(), **({} if "excludes" in submitted else EXCLUDES)})
    lacking = [program.node for program in programs if program.reason]
    if reasons := describe_reasons(compare_programs(lacking, timeout)):
        raise ClusterError(
            f"rag-on-ray was shipped, but not completely ({reasons}): the excludes of the job's runtime_env must not "
            "match its files"
        )


def describe_reasons(programs: Sequence[NodeProgram]) -> str:
    """The nodes that need the program with their reasons, or an empty string."""
    return "; ".join(f"{program.node.name}: {program.reason}" for program in programs if program.reason)


def list_package_folders() -> list[str]:
    root = Path(__file__).parents[1]
    return [str(root / name) for name in SHIPPED_PACKAGES]
