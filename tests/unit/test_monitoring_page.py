"""The page on monitoring, and the configurations that it names."""

from collections.abc import Sequence

import pytest
import yaml
from documents import ROOT, check_block, read_blocks, unknown_blocks

from rag_core.evaluation.drift import DRIFT
from rag_core.evaluation.gate_metrics import GATE_METRICS
from rag_core.telemetry.metrics import METRICS, Metric

PAGE = (ROOT / "docs" / "how-to" / "monitoring.md").read_text()


def row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help.removesuffix('.')} |"


@pytest.mark.parametrize("metrics", [METRICS, (*GATE_METRICS, DRIFT)], ids=["program", "files"])
def test_the_page_lists_every_metric_as_the_program_declares_it(metrics: Sequence[Metric]) -> None:
    assert "\n".join(map(row, metrics)) in PAGE


def test_the_page_lists_no_other_metric() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith(("| `orchestration_", "| `rag_"))]
    assert len(rows) == len(METRICS) + len(GATE_METRICS) + 1


def test_the_commands_of_the_page_exist() -> None:
    blocks = read_blocks(PAGE)
    assert not unknown_blocks(blocks)
    for block in blocks:
        assert block.reason
        check_block(block)


def test_the_collector_s_pipelines_name_only_parts_that_are_configured() -> None:
    configuration = yaml.safe_load((ROOT / "cluster" / "otel-collector.yaml").read_text())
    pipeline = configuration["service"]["pipelines"]["traces"]
    for kind in ("receivers", "processors", "exporters"):
        assert set(pipeline[kind]) == set(configuration[kind])
    assert configuration["service"]["extensions"] == list(configuration["extensions"])
    assert pipeline["processors"][0] == "memory_limiter"
    assert pipeline["processors"][-1] == "batch"


def test_grafana_s_provisioning_names_the_folder_of_the_page() -> None:
    folder = ROOT / "cluster" / "grafana" / "provisioning"
    provider = yaml.safe_load((folder / "dashboards" / "rag-on-ray.yaml").read_text())["providers"][0]
    assert f"cp cluster/grafana/dashboards/*.json {provider['options']['path']}/" in PAGE
    source = yaml.safe_load((folder / "datasources" / "prometheus.yaml").read_text())["datasources"][0]
    assert source["url"] == "${PROMETHEUS_URL}"
