"""The PromQL of Prometheus' rules and of Grafana's dashboards."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from documents import ROOT, read_blocks

from rag_core.evaluation.drift import DRIFT
from rag_core.evaluation.gate_metrics import GATE_METRICS
from rag_core.telemetry.metrics import METRICS

RULES = sorted((ROOT / "cluster" / "prometheus" / "rules").glob("*.yaml"))
DASHBOARDS = sorted((ROOT / "cluster" / "grafana" / "dashboards").glob("*.json"))
OTHER_METRICS = {
    "ray_node_disk_utilization_percentage",
    "ray_serve_deployment_replica_healthy",
    "ray_serve_replica_processing_queries",
    "up",
}
STRINGS = re.compile(r'"[^"]*"|\'[^\']*\'')
LABEL_LISTS = re.compile(r"\b(by|on|ignoring|without|group_left|group_right)\s*\([^)]*\)")
NAMES = re.compile(r"(?<![\w:$])[a-zA-Z_][\w:]*+(?!\s*\()")
MATCHERS = re.compile(r"\{[^}]*\}")
RANGES = re.compile(r"\[[^\]]*\]")
KEYWORDS = {
    "and",
    "or",
    "unless",
    "bool",
    "offset",
    "by",
    "on",
    "ignoring",
    "without",
    "group_left",
    "group_right",
    "le",
}
COMPARISON = re.compile(r"(?P<matchers>\{[^}]*\})|(?P<operator>>=|<=|==|!=|>|<)")


@dataclass(frozen=True)
class Rule:
    """A rule of a file. `alert` and `record` are names; one of them is empty."""

    file: str
    alert: str
    record: str
    expression: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


def read_rules() -> list[Rule]:
    return [
        Rule(
            path.name,
            rule.get("alert", ""),
            rule.get("record", ""),
            rule["expr"],
            rule.get("labels", {}),
            rule.get("annotations", {}),
        )
        for path in RULES
        for group in yaml.safe_load(path.read_text())["groups"]
        for rule in group["rules"]
    ]


def read_panels(dashboard: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The panels with queries. Rows have none."""
    yield from (panel for panel in dashboard["panels"] if panel["type"] != "row")


def read_dashboards() -> list[Mapping[str, Any]]:
    return [json.loads(path.read_text()) for path in DASHBOARDS]


def panel_expressions() -> dict[str, str]:
    """The expressions of all panels by their place, with values in place of Grafana's variables."""
    return {
        f"{dashboard['uid']} {panel['title']} {target['refId']}": re.sub(
            r"\$\w+", ".*", target["expr"].replace("$__rate_interval", "1h")
        )
        for dashboard in read_dashboards()
        for panel in read_panels(dashboard)
        for target in panel["targets"]
    }


def read_runbook() -> dict[str, str]:
    """The expressions on the pages of the runbook, by page and number."""
    return {
        f"{page.stem} {number}": block.text.strip()
        for page in sorted((ROOT / "docs" / "runbook").glob("*.md"))
        for number, block in enumerate(read_blocks(page.read_text()))
        if block.language == "promql"
    }


def program_metrics() -> set[str]:
    """The names of the program's metrics, of recorded series, and of the metrics of Ray and Prometheus that we read."""
    histograms = {f"{metric.name}_{suffix}" for metric in METRICS for suffix in ("bucket", "count", "sum")}
    names = {metric.name for metric in (*METRICS, *GATE_METRICS, DRIFT)}
    return histograms | names | {rule.record for rule in read_rules() if rule.record} | OTHER_METRICS


def metric_names(expression: str) -> set[str]:
    """The names of metrics and recorded series in an expression."""
    bare = RANGES.sub("", MATCHERS.sub("", STRINGS.sub("", LABEL_LISTS.sub("", expression))))
    return set(NAMES.findall(bare)) - KEYWORDS


def with_bool(expression: str) -> str:
    """The expression with comparisons that return 0 or 1. It returns a series whether an alert fires or not."""
    return COMPARISON.sub(lambda match: match["matchers"] or f"{match['operator']} bool", expression)
