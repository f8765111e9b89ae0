"""Dashboards as values, and their JSON for Grafana 10 and later."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

COLUMNS, HEIGHT = 24, 8
"""The width of Grafana's grid, and the height of a panel in its rows."""
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True, slots=True)
class Query:
    """A PromQL expression, and the legend of its series."""

    expression: str
    legend: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One diagram. `unit` is one of Grafana's unit ids, and `width` is in columns of 24.

    Values from `limit` on are too high, and those below `floor` too low: they are red, or beyond a line. The axis
    begins at 0 unless values are `signed`.
    """

    title: str
    description: str
    unit: str
    queries: Sequence[Query]
    kind: Literal["timeseries", "stat"] = "timeseries"
    limit: float | None = None
    floor: float | None = None
    signed: bool = False
    width: int = 8


@dataclass(frozen=True, slots=True)
class Row:
    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True, slots=True)
class Variable:
    """A choice above the dashboard, among the values of a label."""

    name: str
    metric: str
    label: str


@dataclass(frozen=True, slots=True)
class Dashboard:
    uid: str
    title: str
    variables: Sequence[Variable]
    rows: Sequence[Row]


def render_dashboard(dashboard: Dashboard) -> str:
    """The JSON text of a dashboard, as Grafana's provisioning reads it."""
    document = {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "tags": ["rag-on-ray"],
        "timezone": "browser",
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [_render_datasource(), *map(_render_variable, dashboard.variables)]},
        "annotations": {"list": [_render_alerts()]},
        "panels": [{"id": id, **panel} for id, panel in enumerate(_lay_out(dashboard.rows), 1)],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _lay_out(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Yields the panels of each row from left to right, below a heading; a panel that does not fit begins a line."""
    top = 0
    for row in rows:
        yield {"type": "row", "title": row.title, "collapsed": False, "panels": [], "gridPos": _place(0, top, 24, 1)}
        left, top = 0, top + 1
        for panel in row.panels:
            if left + panel.width > COLUMNS:
                left, top = 0, top + HEIGHT
            yield {**_render_panel(panel), "gridPos": _place(left, top, panel.width, HEIGHT)}
            left += panel.width
        top += HEIGHT


def _place(left: int, top: int, width: int, height: int) -> Mapping[str, int]:
    return {"x": left, "y": top, "w": width, "h": height}


def _render_panel(panel: Panel) -> dict[str, Any]:
    steps = _render_steps(panel)
    defaults: dict[str, Any] = {
        "unit": panel.unit,
        "thresholds": {"mode": "absolute", "steps": steps},
        "color": {"mode": "thresholds" if panel.kind == "stat" else "palette-classic"},
    }
    if panel.kind == "timeseries":
        defaults |= {} if panel.signed else {"min": 0}
        defaults |= {"custom": {"thresholdsStyle": {"mode": "dashed" if len(steps) > 1 else "off"}}}
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": DATASOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": _render_options(panel.kind),
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": DATASOURCE,
                "expr": query.expression,
                "legendFormat": query.legend,
            }
            for number, query in enumerate(panel.queries)
        ],
    }


def _render_steps(panel: Panel) -> list[dict[str, Any]]:
    """The colours of values, each from its value on."""
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.floor is not None:
        steps = [{"color": "red", "value": None}, {"color": "green", "value": panel.floor}]
    if panel.limit is not None:
        steps.append({"color": "red", "value": panel.limit})
    return steps


def _render_options(kind: str) -> Mapping[str, Any]:
    if kind == "stat":
        return {"reduceOptions": {"calcs": ["lastNotNull"]}, "textMode": "value_and_name", "colorMode": "background"}
    return {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}}


def _render_datasource() -> Mapping[str, Any]:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _render_variable(variable: Variable) -> Mapping[str, Any]:
    query = f"label_values({variable.metric}, {variable.label})"
    return {
        "name": variable.name,
        "type": "query",
        "datasource": DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": variable.name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _render_alerts() -> Mapping[str, Any]:
    """The program's alerts as marks in all diagrams."""
    return {
        "name": "Alerts",
        "datasource": DATASOURCE,
        "enable": True,
        "iconColor": "red",
        "expr": 'ALERTS{alertname=~"Orchestration.*",alertstate="firing"}',
        "titleFormat": "{{alertname}}",
        "step": "30s",
    }
