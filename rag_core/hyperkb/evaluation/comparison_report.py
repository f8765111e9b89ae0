"""The report that compares experiments: Markdown, with charts in files of their own."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from pydantic import JsonValue

from rag_core.evaluation.metrics import unique_ids
from rag_core.hyperkb.evaluation.bar_chart import Groups, draw_bars
from rag_core.hyperkb.evaluation.experiment import Experiment

DIFFERENT_DATASETS = "The experiments used different datasets, so their figures cannot be compared."


def write_comparison(path: Path, experiments: Sequence[Experiment]) -> Path:
    """Writes the report, and `NAME-metrics.svg` and `NAME-latency.svg` next to it. Each experiment has a result."""
    path.parent.mkdir(parents=True, exist_ok=True)
    results = {experiment.experiment_id: experiment.result for experiment in experiments if experiment.result}
    metrics = _group({id: result.metrics for id, result in results.items()})
    latencies = _group({id: result.latency_stats for id, result in results.items()})
    lines = ["# Comparison of experiments", "", *_describe(experiments)]
    for title, unit, figures in (("Metrics", "", metrics), ("Latency", "ms", latencies)):
        if figures:
            chart = path.with_name(f"{path.stem}-{title.lower()}.svg")
            chart.write_text(draw_bars(title, figures), encoding="utf-8")
            picture = f"![{title}]({quote(chart.name)})"
            lines += ["", f"## {title}", "", *_table(figures, list(results), unit), "", picture]
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return path


def _describe(experiments: Sequence[Experiment]) -> list[str]:
    rows = [
        _row(
            experiment.experiment_id,
            experiment.description,
            experiment.retriever_type,
            _format_params(experiment.retriever_params),
            experiment.dataset_name,
        )
        for experiment in experiments
    ]
    is_comparable = len({experiment.dataset_name for experiment in experiments}) == 1
    warning = [] if is_comparable else ["", DIFFERENT_DATASETS]
    return [_row("experiment", "description", "retriever", "parameters", "dataset"), "|---" * 5 + "|", *rows, *warning]


def _format_params(params: Mapping[str, JsonValue]) -> str:
    values = {
        name: f"({_format_params(value)})" if isinstance(value, dict) else value for name, value in params.items()
    }
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _group(figures: Mapping[str, Mapping[str, float]]) -> Groups:
    """The figures by name, then by experiment; `figures` has them by experiment, then by name."""
    names = unique_ids(name for values in figures.values() for name in values)
    return {name: {id: values[name] for id, values in figures.items() if name in values} for name in names}


def _table(figures: Groups, ids: Sequence[str], unit: str) -> list[str]:
    rows = [
        _row(name, *(f"{values[id]:.4g}" if id in values else "" for id in ids)) for name, values in figures.items()
    ]
    return [_row(unit, *ids), "|---" + "|---:" * len(ids) + "|", *rows]


def _row(*cells: str) -> str:
    escaped = (" ".join(cell.replace("|", "\\|").split()) for cell in cells)
    return f"| {' | '.join(escaped)} |"
