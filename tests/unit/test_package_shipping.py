"""The program on the nodes of a cluster, and what a job does about a node that lacks it."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from jobs import package_shipping
from jobs.cluster_nodes import Answer, Node
from jobs.node_program import describe_program, digest_files
from jobs.package_shipping import (
    EXCLUDES,
    SHIPPED_PACKAGES,
    NodeProgram,
    compare_program,
    join_cluster,
    list_distributions,
    list_package_folders,
    ship_program,
)
from jobs.ray_connection import UNLIMITED
from jobs.submitted_job import SUBMITTED_JOB
from rag_core.errors import ClusterError

NODE = Node(id="a" * 56, address="10.0.0.2", host="worker", cpus=4, gpus=0, metrics_port=8080)
OWN = {"python": "3.11.7", "folder": "/opt/rag", "digest": "d1", "versions": {"ray": "2.60.0", "xlrd": "2.0.2"}}
SILENT_NODE = Node(id="b" * 56, address="10.0.0.3", host="worker", cpus=4, gpus=0, metrics_port=8080)
LACKING = NodeProgram(node=NODE, reason="rag-on-ray is not installed")
SILENT = NodeProgram(node=SILENT_NODE, error="no answer within 15 s")


@pytest.mark.parametrize(
    ("difference", "reason", "missing"),
    [
        ({}, "", ()),
        ({"folder": "", "digest": ""}, "rag-on-ray is not installed", ()),
        ({"digest": "d2"}, "/opt/rag has other code than this process", ()),
        ({"versions": {"ray": "2.60.0", "xlrd": ""}}, "", ("xlrd",)),
    ],
)
def test_a_program_is_shipped_if_it_is_missing_or_different(
    difference: dict[str, Any], reason: str, missing: tuple[str, ...]
) -> None:
    program = compare_program(Answer(NODE, {**OWN, **difference}), OWN)
    assert (program.reason, program.missing, program.error) == (reason, missing, "")


def test_the_description_of_this_process_names_its_folder_and_requirements() -> None:
    description = describe_program(SHIPPED_PACKAGES, list_distributions())
    assert [str(Path(description["folder"]) / name) for name in SHIPPED_PACKAGES] == list_package_folders()
    assert description["versions"]["ray"] == ray.__version__
    assert "" not in description["versions"].values()
    assert describe_program(["no_such_package"], ["no-such-distribution"]) == {
        "python": description["python"],
        "folder": "",
        "digest": "",
        "versions": {"no-such-distribution": ""},
    }


def test_the_digest_changes_with_names_and_contents_but_not_with_compiled_files(tmp_path: Path) -> None:
    package = tmp_path / "package"
    (package / "__pycache__").mkdir(parents=True)
    (package / "a.py").write_text("x = 1\n")
    digests = [digest_files([package])]
    (package / "__pycache__" / "a.pyc").write_bytes(b"compiled")
    assert digest_files([package]) == digests[0]
    for name, text in {"a.py": "x = 2\n", "b.py": ""}.items():
        (package / name).write_text(text)
        digests.append(digest_files([package]))
    assert len(set(digests)) == 3


def test_a_node_without_requirements_or_a_cluster_without_answers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "head.internal:6379")
    monkeypatch.setattr(package_shipping, "start_ray", lambda *_: None)
    programs = [NodeProgram(node=NODE, missing=("torch", "xlrd"))]
    monkeypatch.setattr(package_shipping, "list_nodes", lambda: [NODE])
    monkeypatch.setattr(package_shipping, "compare_programs", lambda _: programs)
    with pytest.raises(ClusterError, match=rf"{re.escape(NODE.name)} lacks torch, xlrd; install rag-on-ray"):
        join_cluster()
    programs[:] = [NodeProgram(node=NODE, error="no answer within 60 s")]
    with pytest.raises(ClusterError, match=r"no node of the cluster .* no answer within 60 s"):
        join_cluster()


def pretend_cluster(monkeypatch: pytest.MonkeyPatch, mode: int, submitted: dict[str, Any], after: str) -> list[Any]:
    """Makes Ray accept a new connection, after which a node has the reason `after`. Returns the environments.

    Asserts that no node that had the program or no answer is asked again.
    """

    def compare_programs(nodes: Sequence[Node], timeout: float) -> list[NodeProgram]:
        assert (nodes, timeout) == ([NODE], 15.0)
        return [NodeProgram(node=NODE, reason=after)]

    environments: list[Any] = []
    context = SimpleNamespace(worker=SimpleNamespace(mode=mode))
    monkeypatch.setattr(ray, "get_runtime_context", lambda: context)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.setattr(package_shipping, "start_ray", lambda _, environment: environments.append(environment))
    monkeypatch.setattr(package_shipping, "compare_programs", compare_programs)
    monkeypatch.setenv(SUBMITTED_JOB, json.dumps({"runtime_env": submitted}))
    return environments


@pytest.mark.parametrize(
    ("mode", "submitted", "after", "message"),
    [
        (ray.WORKER_MODE, {}, "", "cannot be shipped by a worker of Ray"),
        (ray.SCRIPT_MODE, {"py_modules": ["gcs://theirs.zip"]}, "", "runtime_env has py_modules"),
        (ray.SCRIPT_MODE, {"excludes": ["*.yaml"]}, "rag-on-ray is not installed", "was shipped, but not completely"),
    ],
)
def test_a_program_that_cannot_be_shipped_is_an_error_that_names_the_nodes(
    mode: int, submitted: dict[str, Any], after: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_cluster(monkeypatch, mode, submitted, after)
    with pytest.raises(ClusterError, match=message) as refusal:
        ship_program([LACKING, SILENT], UNLIMITED, timeout=15.0)
    assert f"{NODE.name}: rag-on-ray is not installed" in str(refusal.value)


@pytest.mark.parametrize(
    ("submitted", "excludes"), [({"working_dir": "gcs://job.zip"}, EXCLUDES), ({"excludes": ["*.log"]}, {})]
)
def test_nothing_that_a_job_has_is_replaced(
    submitted: dict[str, Any], excludes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray refuses to merge two environments with the same key."""
    environments = pretend_cluster(monkeypatch, ray.SCRIPT_MODE, submitted, after="")
    ship_program([LACKING, SILENT], UNLIMITED, timeout=15.0)
    assert environments == [{"py_modules": list_package_folders(), **excludes}]
