"""The manifests for Kustomize are those of the chart."""

from typing import Any

import pytest
import yaml
from charts import render_example

from tools.kustomize import FOLDER, OVERLAYS, find_difference, read_manifests, write_manifests
from tools.render_chart import merge

CORE_LISTS = "a patch of a kind of Kubernetes would merge this list by keys"


@pytest.fixture(autouse=True)
def skip_without_go() -> None:
    render_example("default")


def read_overlay(name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The kustomization and its patches."""
    folder = FOLDER / "overlays" / name
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    return kustomization, [yaml.safe_load((folder / patch["path"]).read_text()) for patch in kustomization["patches"]]


def read_target(manifest: dict[str, Any]) -> tuple[str, str, str]:
    """The key by which Kustomize finds the manifest that a patch changes. It includes the namespace."""
    metadata = manifest["metadata"]
    return manifest["kind"], metadata.get("namespace", ""), metadata["name"]


def test_the_files_are_what_the_chart_renders() -> None:
    files = {str(file.relative_to(FOLDER)): file.read_text() for file in FOLDER.rglob("*.yaml")}
    assert files == write_manifests(), "run `python -m tools.kustomize`"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_an_overlay_makes_the_base_what_the_chart_renders_for_the_example(overlay: str) -> None:
    kustomization, patches = read_overlay(overlay)
    manifests = {read_target(manifest): manifest for manifest in read_manifests().values()}
    for name in kustomization["resources"][1:]:
        manifest = yaml.safe_load((FOLDER / "overlays" / overlay / name).read_text())
        assert manifests.setdefault(read_target(manifest), manifest) is manifest
    for patch in patches:
        target = read_target(patch)
        if patch.get("$patch") == "delete":
            del manifests[target]
        else:
            manifests[target] = merge(manifests[target], patch)
    assert manifests == {read_target(manifest): manifest for manifest in read_manifests(overlay).values()}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_patches_replace_lists_of_custom_resources_only(overlay: str) -> None:
    """Kustomize merges the lists of kinds that it knows, and replaces those of others."""
    _, patches = read_overlay(overlay)
    for patch in patches:
        if patch["apiVersion"] != "ray.io/v1":
            assert not has_list(patch), CORE_LISTS


def has_list(value: object) -> bool:
    return isinstance(value, list) or (isinstance(value, dict) and any(map(has_list, value.values())))


@pytest.mark.parametrize(
    ("former", "latter", "patch"),
    [
        ({"a": 1}, {"a": 1}, {}),
        ({"a": 1, "b": 2}, {"a": 3}, {"a": 3, "b": None}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, {"a": {"c": 3}}),
        ({"a": [1]}, {"a": [1, 2]}, {"a": [1, 2]}),
        ({}, {"a": 0}, {"a": 0}),
    ],
)
def test_a_difference_is_a_merge_patch(former: dict[str, Any], latter: dict[str, Any], patch: dict[str, Any]) -> None:
    assert find_difference(former, latter) == patch
    assert merge(former, patch) == latter


def test_nothing_of_helm_is_left() -> None:
    assert not any("helm" in text.removeprefix("#").partition("\n")[2].lower() for text in write_manifests().values())
