"""Grafana's dashboards."""

import subprocess
from pathlib import Path

import pytest
import yaml
from debian import find_program
from promql import DASHBOARDS as FILES
from promql import metric_names, panel_expressions, program_metrics, read_dashboards, read_panels, read_runbook

from rag_core.evaluation.drift import DRIFT
from rag_core.evaluation.gate_metrics import GATE_METRICS
from rag_core.telemetry.metrics import METRICS
from tools.dashboards import DASHBOARDS
from tools.dashboards.grafana import Dashboard, Panel, Query, Row, render_dashboard

UNITS = {"s", "none", "bytes", "percent", "percentunit", "reqps", "cps"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_is_what_the_script_writes(path: Path) -> None:
    assert path.read_text() == render_dashboard(DASHBOARDS[path.stem]), "run `python -m tools.dashboards`"


def test_every_dashboard_has_its_file() -> None:
    assert {path.stem for path in FILES} == set(DASHBOARDS)


def test_ids_are_unique_and_every_panel_has_a_unit_and_a_description() -> None:
    dashboards = read_dashboards()
    assert len({dashboard["uid"] for dashboard in dashboards}) == len(dashboards)
    for dashboard in dashboards:
        ids = [panel["id"] for panel in dashboard["panels"]]
        assert len(set(ids)) == len(ids)
        for panel in read_panels(dashboard):
            assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
            assert panel["description"].endswith(".")
            assert panel["targets"]


def test_no_two_panels_overlap() -> None:
    for dashboard in read_dashboards():
        cells = [
            (x, y)
            for place in (panel["gridPos"] for panel in dashboard["panels"])
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        ]
        assert len(set(cells)) == len(cells)
        assert max(x for x, _ in cells) < 24


def test_a_panel_that_does_not_fit_begins_a_new_line() -> None:
    panels = [
        Panel(title=f"{n}", description="", unit="s", queries=[Query("up", "")], width=width)
        for n, width in enumerate((8, 8, 12))
    ]
    text = render_dashboard(Dashboard("uid", "title", (), (Row("row", panels), Row("next", panels[:1]))))
    assert text.count('"y": 1,') == 2
    assert text.count('"y": 9,') == 1
    assert text.count('"y": 18,') == 1


def test_a_failed_gate_and_a_store_that_is_down_are_red_and_a_fall_of_the_scores_is_on_the_axis() -> None:
    defaults = {
        panel["title"]: panel["fieldConfig"]["defaults"]
        for dashboard in read_dashboards()
        for panel in read_panels(dashboard)
    }
    for title in ("Gate", "Store"):
        colors = [(step["color"], step["value"]) for step in defaults[title]["thresholds"]["steps"]]
        assert colors == [("red", None), ("green", 1)]
    assert "min" not in defaults["Drift of live answers"]


def test_panels_name_only_metrics_that_exist() -> None:
    assert {name for text in panel_expressions().values() for name in metric_names(text)} - program_metrics() == set()


def test_every_expression_of_panels_and_runbook_parses(tmp_path: Path) -> None:
    expressions = [*panel_expressions().values(), *read_runbook().values()]
    rules = [{"record": "expression", "expr": text, "labels": {"n": f"{n}"}} for n, text in enumerate(expressions)]
    path = tmp_path / "expressions.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "expressions", "rules": rules}]}))
    command = [str(find_program("promtool")), "check", "rules", str(path)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout + process.stderr


def test_variables_name_labels_of_the_metrics_that_they_read() -> None:
    labels = {metric.name: set(metric.labels) for metric in (*METRICS, *GATE_METRICS, DRIFT)}
    for dashboard in DASHBOARDS.values():
        for variable in dashboard.variables:
            assert variable.label in labels.get(variable.metric, {"deployment"})
