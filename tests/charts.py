"""The Helm chart as it is rendered for several values."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from rag_core.errors import ConfigError
from tools.render_chart import CHART, build_renderer, read_values, render_documents

EXAMPLES = {
    "default": (),
    "gpu": ("gpu",),
    "jobs": ("jobs",),
    "trial": ("trial",),
    "job-only": ("job-only",),
    "full": ("full", "gpu", "jobs"),
}
"""The files of examples whose values are merged, by name of a combination."""


def example_files(name: str) -> list[Path]:
    return [CHART / "examples" / f"{file}.yaml" for file in EXAMPLES[name]]


@lru_cache
def render_example(name: str) -> tuple[dict[str, Any], ...]:
    """The manifests. Callers must not change them. Skips the test without Go."""
    try:
        build_renderer()
    except ConfigError as error:
        pytest.skip(str(error))
    return tuple(render_documents(read_values(example_files(name))))


def select_kind(name: str, kind: str) -> list[dict[str, Any]]:
    return [document for document in render_example(name) if document["kind"] == kind]


def cluster_specs(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The specs of the Ray clusters that a manifest starts."""
    spec = document.get("spec", {})
    match document["kind"]:
        case "RayService":
            yield spec["rayClusterConfig"]
        case "RayCluster":
            yield spec
        case "RayJob" if "rayClusterSpec" in spec:
            yield spec["rayClusterSpec"]


def pod_templates(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The templates of all pods that a manifest starts."""
    for spec in cluster_specs(document):
        yield from (group["template"] for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]))
    match document["kind"]:
        case "RayJob":
            yield document["spec"]["submitterPodTemplate"]
        case "Job":
            yield document["spec"]["template"]
        case "CronJob":
            yield document["spec"]["jobTemplate"]["spec"]["template"]
        case "Pod":
            yield {"metadata": document["metadata"], "spec": document["spec"]}


def all_pods(name: str) -> list[dict[str, Any]]:
    return [template for document in render_example(name) for template in pod_templates(document)]


def containers(name: str) -> list[dict[str, Any]]:
    return [container for pod in all_pods(name) for container in pod["spec"]["containers"]]


def variables(name: str) -> dict[str, str]:
    """The environment variables with a value in the chart, of all pods."""
    return {
        variable["name"]: variable["value"]
        for container in containers(name)
        for variable in container.get("env", [])
        if "value" in variable
    }


def matches(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """True if a selector of Kubernetes selects a pod with the labels."""
    expressions = selector.get("matchExpressions", [])
    assert all(expression["operator"] in ("In", "NotIn") for expression in expressions)
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items()) and all(
        (labels.get(expression["key"]) in expression["values"]) == (expression["operator"] == "In")
        for expression in expressions
    )
