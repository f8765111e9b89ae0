"""The workflow of the nightly evaluation names profiles, commands and options that exist."""

from pathlib import Path
from typing import Any

import yaml
from documents import ROOT, check_shell

from rag_core.settings import list_shipped_profiles

FILE = Path(ROOT) / "examples" / "nightly_evaluation.yaml"


def test_the_nightly_workflow_calls_commands_that_exist_for_shipped_profiles() -> None:
    job: dict[str, Any] = yaml.safe_load(FILE.read_text())["jobs"]["evaluate"]
    profiles = job["strategy"]["matrix"]["profile"]
    assert set(profiles) <= set(list_shipped_profiles())
    steps = [step["run"] for step in job["steps"] if "run" in step]
    commands = [step.replace(".venv/bin/rag", "rag").replace("${{ matrix.profile }}", profiles[0]) for step in steps]
    assert [word for step in commands for word in ("evaluate", "report", "gate") if f"rag {word}" in step] == [
        "evaluate",
        "report",
        "gate",
    ]
    for step in commands:
        check_shell(step)
