"""The SBOM of a release: its subject, its licences, and whether the packages have the tested versions."""

from pathlib import Path
from typing import Any

from tools.sbom import complete_sbom, list_unlicensed, list_unpinned, read_licenses

MIT = [{"license": {"id": "MIT"}}]
LISTED: dict[str, Any] = {
    "metadata": {"timestamp": "2026-11-26T20:00:00+00:00"},
    "components": [
        {"name": "attrs", "version": "26.1.0", "type": "library", "licenses": MIT},
        {
            "name": "rag-on-ray",
            "version": "1.2.0",
            "type": "library",
            "bom-ref": "rag-on-ray==1.2.0",
            "externalReferences": [{"type": "distribution", "url": "file:///home/ana/rag_on_ray-1.2.0.whl"}],
        },
        {"name": "ray", "version": "2.60.0", "type": "library"},
        {"name": "torch", "version": "2.13.0+cpu", "type": "library", "licenses": MIT},
    ],
}


def test_the_program_is_the_subject_with_the_digest_and_without_the_path_of_its_wheel() -> None:
    sbom = complete_sbom(LISTED, "ab" * 32, {})
    assert sbom["metadata"] == {
        "timestamp": "2026-11-26T20:00:00+00:00",
        "component": {
            "name": "rag-on-ray",
            "version": "1.2.0",
            "type": "application",
            "bom-ref": "rag-on-ray==1.2.0",
            "purl": "pkg:pypi/rag-on-ray@1.2.0",
            "hashes": [{"alg": "SHA-256", "content": "ab" * 32}],
        },
    }
    assert [component["name"] for component in sbom["components"]] == ["attrs", "ray", "torch"]


def test_a_licence_in_words_is_added_where_none_is_listed() -> None:
    sbom = complete_sbom(LISTED, "ab" * 32, {"ray": "Apache 2.0", "attrs": "none of these"})
    licenses = {component["name"]: component["licenses"] for component in sbom["components"]}
    assert licenses["ray"] == [{"license": {"name": "Apache 2.0", "acknowledgement": "declared"}}]
    assert licenses["attrs"] == MIT
    assert list_unlicensed(sbom) == []
    assert list_unlicensed(complete_sbom(LISTED, "ab" * 32, {})) == ["ray"]


def test_licences_are_the_first_lines_of_the_metadata(tmp_path: Path) -> None:
    for name, field in {
        "ray": "License: Apache 2.0\n",
        "long": "License: BSD\n        More text.\n",
        "none": "",
    }.items():
        metadata = tmp_path / f"{name}-1.0.dist-info" / "METADATA"
        metadata.parent.mkdir()
        metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{field}")
    assert read_licenses(tmp_path) == {"ray": "Apache 2.0", "long": "BSD"}


def test_packages_with_other_versions_than_the_constraints_are_listed() -> None:
    sbom = complete_sbom(LISTED, "ab" * 32, {})
    assert list_unpinned(sbom, ["# tested", "Attrs==26.1.0", "ray==2.60.0", "torch==2.13.0"]) == []
    assert list_unpinned(sbom, ["attrs==26.1.0", "torch==2.12.0"]) == ["ray==2.60.0", "torch==2.13.0"]
