"""The SBOM of a release in CycloneDX's format: the program, and the packages that are installed with it."""

from collections.abc import Iterable, Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

PROGRAM = "rag-on-ray"


def complete_sbom(sbom: Mapping[str, Any], digest: str, licenses: Mapping[str, str]) -> dict[str, Any]:
    """The SBOM of cyclonedx-py with the program as its subject, and with the licences that it leaves out.

    cyclonedx-py lists the program as one of its own packages, with the path of the wheel on this machine. `digest` is
    the wheel's SHA-256. `licenses`: the licence of each package that states it in words of its own.
    """
    components = {component["name"]: component for component in sbom["components"]}
    program = components.pop(PROGRAM)
    program = {name: value for name, value in program.items() if name != "externalReferences"}
    program |= {
        "type": "application",
        "purl": f"pkg:pypi/{PROGRAM}@{program['version']}",
        "hashes": [{"alg": "SHA-256", "content": digest}],
    }
    return {
        **sbom,
        "metadata": {**sbom["metadata"], "component": program},
        "components": [add_license(component, licenses) for component in components.values()],
    }


def add_license(component: Mapping[str, Any], licenses: Mapping[str, str]) -> dict[str, Any]:
    """The component with its licence from `licenses`, if it has none."""
    name = licenses.get(component["name"], "")
    if component.get("licenses") or not name:
        return dict(component)
    return {**component, "licenses": [{"license": {"name": name, "acknowledgement": "declared"}}]}


def read_licenses(folder: Path) -> dict[str, str]:
    """The first line of the field License of each package in a `site-packages` folder."""
    fields = {package.name: package.metadata.get("License", "") for package in distributions(path=[str(folder)])}
    return {name: text.strip().splitlines()[0] for name, text in fields.items() if text.strip()}


def list_unlicensed(sbom: Mapping[str, Any]) -> list[str]:
    return [component["name"] for component in sbom["components"] if not component.get("licenses")]


def list_unpinned(sbom: Mapping[str, Any], constraints: Iterable[str]) -> list[str]:
    """`name==version` of each component that has another version than in `constraints`, or is not in it.

    The label of a build, such as `+cpu`, is not part of the version.
    """
    pins = {line.strip().lower().replace("_", "-") for line in constraints}
    components = [(component["name"], component["version"].partition("+")[0]) for component in sbom["components"]]
    versions = [f"{name}=={version}" for name, version in components]
    return [version for version in versions if version.lower().replace("_", "-") not in pins]


def find_fault(text: str) -> str:
    """Why the text is not an SBOM of CycloneDX 1.6, or an empty string."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    return str(error) if error else ""
