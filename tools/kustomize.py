"""Writes `cluster/kustomize`: the chart's manifests for those who deploy without Helm.

The base is what the chart renders for its default values. Each overlay changes it into what the chart renders for one
of its examples, by merge patches: mappings are merged, lists and texts replaced, and null removes a key.
"""

import argparse
import shutil
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from tools.render_chart import CHART, ROOT, merge, read_values, render_documents

FOLDER = ROOT / "cluster" / "kustomize"
OVERLAYS = ("gpu", "jobs", "trial")
"""Names of the chart's examples, and of the overlays."""

HEAD = "# Written by `python -m tools.kustomize` from the Helm chart: change the chart instead.\n"
HELM_LABELS = ("helm.sh/chart", "app.kubernetes.io/managed-by")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tools.kustomize",
        description="Write cluster/kustomize from the Helm chart.",
        epilog="example: python -m tools.kustomize && kubectl diff --kustomize cluster/kustomize/overlays/gpu",
    )
    parser.parse_args()
    shutil.rmtree(FOLDER, ignore_errors=True)
    for name, text in write_manifests().items():
        file = FOLDER / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        print(file.relative_to(ROOT))


def write_manifests() -> dict[str, str]:
    """The text of each file, by its path in the folder."""
    base = read_manifests()
    files = {f"base/{name}": dump(document) for name, document in base.items()}
    files["base/kustomization.yaml"] = dump(_kustomization(resources=sorted(base)))
    for overlay in OVERLAYS:
        changed = read_manifests(overlay)
        added = sorted(changed.keys() - base.keys())
        patches = dict(_find_patches(base, changed))
        contents = {**{name: changed[name] for name in added}, **patches}
        contents["kustomization.yaml"] = _kustomization(
            resources=["../../base", *added], patches=[{"path": name} for name in sorted(patches)]
        )
        files |= {f"overlays/{overlay}/{name}": dump(document) for name, document in contents.items()}
    return files


def read_manifests(example: str = "") -> dict[str, dict[str, Any]]:
    """The manifests of an example, by the name of their file.

    Helm's hooks are left out: without Helm, the first command of a new version migrates the tables.
    """
    files = [CHART / "examples" / f"{example}.yaml"] if example else []
    documents = render_documents(read_values(files))
    kept = [document for document in documents if "helm.sh/hook" not in document["metadata"].get("annotations", {})]
    return {f"{document['kind'].lower()}-{document['metadata']['name']}.yaml": _strip(document) for document in kept}


def _strip(document: Mapping[str, Any]) -> dict[str, Any]:
    metadata = document["metadata"]
    labels = {key: value for key, value in metadata["labels"].items() if key not in HELM_LABELS}
    return {**document, "metadata": {**metadata, "labels": labels}}


def _kustomization(**fields: list[Any]) -> dict[str, Any]:
    present = {key: value for key, value in fields.items() if value}
    return {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", **present}


def _find_patches(
    base: Mapping[str, dict[str, Any]], changed: Mapping[str, dict[str, Any]]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the patch of each manifest of the base that an overlay changes or deletes, by the name of its file."""
    for name, document in base.items():
        identity = {
            "apiVersion": document["apiVersion"],
            "kind": document["kind"],
            "metadata": {key: document["metadata"][key] for key in ("name", "namespace")},
        }
        if name not in changed:
            yield f"delete-{name}", {**identity, "$patch": "delete"}
        elif difference := find_difference(document, changed[name]):
            yield f"patch-{name}", merge(identity, difference)


def find_difference(former: Mapping[str, Any], latter: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch (RFC 7386) that makes the former mapping the latter."""
    patch: dict[str, Any] = {key: None for key in former if key not in latter}
    for key, value in latter.items():
        if isinstance(value, dict) and isinstance(former.get(key), dict):
            if inner := find_difference(former[key], value):
                patch[key] = inner
        elif key not in former or former[key] != value:
            patch[key] = value
    return patch


class _Dumper(yaml.SafeDumper):
    """Writes a text of several lines as a block."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)


def dump(document: Mapping[str, Any]) -> str:
    return HEAD + yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=120)


if __name__ == "__main__":
    main()
