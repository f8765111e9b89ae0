"""Configurations and jobs of version 0.1.0, which `tests/data/version_0_1_0` holds as that version had them."""

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import yaml

from rag_core.config import CONFIG_VERSION
from rag_core.settings import load_settings
from rag_core.wiring.ingestion import settings_from_job

FOLDER = Path(__file__).parents[1] / "data" / "version_0_1_0"
JOBS: dict[str, Any] = json.loads((FOLDER / "jobs.json").read_text())
"""The recorded settings and the pipeline version of a job, by profile; those of the file begin with its name."""


@pytest.mark.parametrize("file", sorted(FOLDER.glob("profiles/*.yaml")), ids=lambda file: file.stem)
def test_a_shipped_profile_still_loads(file: Path, tmp_path: Path) -> None:
    profiles = {path.stem: yaml.safe_load(path.read_text()) for path in FOLDER.glob("profiles/*.yaml")}
    config = tmp_path / "former.yaml"
    config.write_text(yaml.safe_dump({"profiles": profiles}))
    settings = load_settings(config, file.stem, (), {})
    assert settings.pipeline_version == JOBS[file.stem]["pipeline_version"]


@pytest.mark.parametrize("profile", ["default", "memos", "memos-laptop"])
def test_a_configuration_still_means_the_same(profile: str) -> None:
    settings = load_settings(FOLDER / "rag.yaml", profile, (), {})
    assert settings.pipeline_version == JOBS[f"rag.yaml {profile}"]["pipeline_version"]


@pytest.mark.parametrize("name", JOBS)
def test_a_job_is_done_with_the_settings_that_it_recorded(name: str) -> None:
    recorded = JOBS[name]["settings"]
    current = load_settings(FOLDER / "rag.yaml", "memos", ["version=3.0.0", "guard.mode=flag"], {})
    restored = settings_from_job({"id": UUID(int=1), "settings": recorded}, current)
    assert restored.pipeline_version == JOBS[name]["pipeline_version"]
    assert (restored.version, f":v{CONFIG_VERSION}+" in restored.pipeline_version) == ("", True)
