"""The rules of Prometheus: their syntax, their tests, and what each alert must have."""

import subprocess
from pathlib import Path

import pytest
from debian import find_program
from documents import ROOT
from promql import RULES, Rule, metric_names, program_metrics, read_rules, with_bool

FOLDER = ROOT / "cluster" / "prometheus"
TESTS = sorted((FOLDER / "tests").glob("*.yaml"))
ALERTS = [rule for rule in read_rules() if rule.alert]
REPOSITORY = "https://github.com/rag-on-ray/rag-on-ray/blob/main"


def promtool(*arguments: object) -> str:
    command = [str(find_program("promtool")), *map(str, arguments)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout + process.stderr


def test_promtool_accepts_the_configuration_and_its_rules() -> None:
    assert f"{len(RULES)} rule files found" in promtool("check", "config", FOLDER / "prometheus.yaml")


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_alerts_fire_when_they_should_and_only_then(path: Path) -> None:
    assert "SUCCESS" in promtool("test", "rules", path)


@pytest.mark.parametrize("name", sorted({rule.alert for rule in ALERTS}))
def test_an_alert_is_tested_and_has_a_page(name: str) -> None:
    assert any(name in path.read_text() for path in TESTS), "it needs a case in cluster/prometheus/tests"
    page = (ROOT / "docs" / "runbook" / f"{name}.md").read_text()
    assert page.startswith(f"# {name}\n")
    for heading in ("What it means", "How to see it", "Likely causes", "What to do", "How to know that it is over"):
        assert f"\n## {heading}\n" in page


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: f"{rule.alert} {rule.labels['severity']}")
def test_an_alert_says_how_severe_it_is_and_where_help_is(rule: Rule) -> None:
    assert rule.labels["severity"] in ("page", "warning")
    assert set(rule.annotations) == {"summary", "description", "runbook_url"}
    assert rule.annotations["runbook_url"] == f"{REPOSITORY}/docs/runbook/{rule.alert}.md"


def test_every_page_of_the_runbook_belongs_to_an_alert() -> None:
    pages = {path.stem for path in (ROOT / "docs" / "runbook").glob("*.md")}
    assert pages - {"index"} == {rule.alert for rule in ALERTS}


def test_rules_name_only_metrics_that_exist() -> None:
    assert {name for rule in read_rules() for name in metric_names(rule.expression)} - program_metrics() == set()


def test_the_chart_has_the_same_rules() -> None:
    chart = ROOT / "cluster" / "helm" / "rag-on-ray" / "rules"
    assert {path.name: path.read_text() for path in chart.iterdir()} == {path.name: path.read_text() for path in RULES}


def test_names_of_metrics_are_found_in_an_expression() -> None:
    expression = 'sum by (le, job) (rate(a_total{b="c d"}[5m])) / on (x) group_left () max(x:y:z) or 0 * vector(1)'
    assert metric_names(expression) == {"a_total", "x:y:z"}


def test_comparisons_return_0_or_1_and_matchers_stay() -> None:
    assert with_bool('a{b!="c"} > 1 and d == 0') == 'a{b!="c"} > bool 1 and d == bool 0'
