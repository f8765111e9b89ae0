"""Renders the Helm chart as `helm template` does, and checks the values by the chart's schema.

Users need Helm itself. This exists because the checks of this repository must run without it: `tools/helm` is a small
program in Go with Helm's template functions, built by the Go of `make debian`.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft7Validator

from rag_core.errors import ConfigError

ROOT = Path(__file__).parents[1]
CHART = ROOT / "cluster" / "helm" / "rag-on-ray"
SOURCE = ROOT / "tools" / "helm"
DEBIAN = ROOT / "build" / "debian"
PROGRAM = ROOT / "build" / "render"
EXAMPLE = """\
examples:
  python -m tools.render_chart
  python -m tools.render_chart --values cluster/helm/rag-on-ray/examples/gpu.yaml --set serve.rollout=2
"""


def main() -> None:
    options = _parse_arguments()
    try:
        values = read_values(options.values, options.set)
        print(render(values, options.release, options.namespace, notes=options.notes), end="")
    except ConfigError as error:
        sys.exit(f"error: {error}")


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tools.render_chart",
        description="Print the manifests of the Helm chart, as `helm template` does.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--values", type=Path, action="append", default=[], metavar="FILE", help="repeatable")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a value in YAML; repeatable")
    parser.add_argument("--release", default="rag", help="the name of the release")
    parser.add_argument("--namespace", default="rag", help="the namespace of the release")
    parser.add_argument("--notes", action="store_true", help="print what Helm prints after an installation")
    return parser.parse_args()


def read_values(files: Iterable[Path] = (), assignments: Sequence[str] = ()) -> dict[str, Any]:
    """The chart's values with those of the files and of `a.b=VALUE`, in this order.

    Raises ConfigError with the key and the rule if the schema refuses them, or if a file cannot be read.
    """
    values: dict[str, Any] = {}
    for file in (CHART / "values.yaml", *files):
        try:
            document = yaml.safe_load(file.read_text()) or {}
        except (OSError, yaml.YAMLError) as error:
            raise ConfigError(f"cannot read {file}: {error}") from None
        if not isinstance(document, dict):
            raise ConfigError(f"{file} must be a mapping of values, got {document!r:.60}")
        values = merge(values, document)
    for assignment in assignments:
        values = merge(values, _parse_assignment(assignment))
    check_values(values)
    return values


def merge(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The values with the changes: mappings are merged, other values replaced, and null removes a key."""
    merged = dict(values)
    for key, change in changes.items():
        if change is None:
            merged.pop(key, None)
        elif isinstance(change, dict):
            former = merged.get(key)
            merged[key] = merge(former if isinstance(former, dict) else {}, change)
        else:
            merged[key] = change
    return merged


def _parse_assignment(assignment: str) -> dict[str, Any]:
    path, equals, text = assignment.partition("=")
    if not equals:
        raise ConfigError(f"--set must be KEY=VALUE, got {assignment}")
    value: Any = yaml.safe_load(text)
    for key in reversed(path.split(".")):
        value = {key: value}
    return dict(value)


def check_values(values: Mapping[str, Any]) -> None:
    """Raises ConfigError with a line for each value that the chart's schema refuses."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    errors = sorted(Draft7Validator(schema).iter_errors(values), key=lambda error: list(map(str, error.path)))
    if errors:
        raise ConfigError(
            "\n".join(f"{'.'.join(map(str, error.path)) or 'values'}: {error.message}" for error in errors)
        )


def render(values: Mapping[str, Any], release: str = "rag", namespace: str = "rag", *, notes: bool = False) -> str:
    """The manifests as YAML, or the text of NOTES.txt. Raises ConfigError with the message of a template that fails."""
    command = [str(build_renderer()), *(["--show-notes"] if notes else []), str(CHART), release, namespace]
    done = subprocess.run(command, input=json.dumps(values), capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigError(done.stderr.strip().rpartition("error calling fail: ")[2])
    return done.stdout


def render_documents(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The manifests of a release `rag` in a namespace `rag`."""
    return [document for document in yaml.safe_load_all(render(values)) if document]


def build_renderer() -> Path:
    """The program, built anew if its source has changed. Raises ConfigError without the Go of `make debian`."""
    root = (DEBIAN / "usr" / "lib" / "go-1.19").resolve()
    if not (root / "bin" / "go").exists():
        raise ConfigError("the chart's renderer needs Go: run `make debian`")
    changed = max(file.stat().st_mtime for file in SOURCE.glob("*.go"))
    if not PROGRAM.exists() or PROGRAM.stat().st_mtime < changed:
        _compile(root, root.parents[1] / "share" / "gocode")
    return PROGRAM


def _compile(root: Path, path: Path) -> None:
    """Replaces the program in one step, because processes of tests can compile at the same time."""
    variables = {
        "GOROOT": str(root),
        "GOPATH": str(path),
        "GOCACHE": str(PROGRAM.with_name("go-cache")),
        "GO111MODULE": "off",
        "GOFLAGS": "",
        "CGO_ENABLED": "0",
    }
    unfinished = PROGRAM.with_name(f"render-{os.getpid()}")
    command = [str(root / "bin" / "go"), "build", "-o", str(unfinished), "."]
    done = subprocess.run(
        command, cwd=SOURCE, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ConfigError(f"the chart's renderer does not compile: {done.stderr.strip()}")
    unfinished.replace(PROGRAM)


if __name__ == "__main__":
    main()
