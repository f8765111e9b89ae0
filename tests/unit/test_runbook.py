"""The pages of the runbook: their commands exist, and their expressions name metrics that exist."""

from pathlib import Path

import pytest
from documents import ROOT, check_shell, read_blocks
from promql import metric_names, program_metrics, read_rules, read_runbook

PAGES = sorted((ROOT / "docs" / "runbook").glob("Orchestration*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_names_commands_and_metrics_that_exist(page: Path) -> None:
    blocks = read_blocks(page.read_text())
    assert {block.language for block in blocks} <= {"promql", "sh"}
    for block in blocks:
        if block.language == "sh":
            check_shell(block.text)
    expressions = [text for place, text in read_runbook().items() if place.startswith(f"{page.stem} ")]
    assert expressions
    assert {name for text in expressions for name in metric_names(text)} - program_metrics() == set()


def test_the_index_names_each_page_with_the_severities_of_its_alert() -> None:
    severities: dict[str, list[str]] = {}
    for rule in read_rules():
        if rule.alert:
            severities.setdefault(rule.alert, []).append(rule.labels["severity"])
    lines = (ROOT / "docs" / "runbook" / "index.md").read_text().splitlines()
    rows = {line for line in lines if line.startswith("| [")}
    assert rows == {f"| [{name}]({name}.md) | {', '.join(alerts)} |" for name, alerts in severities.items()}
