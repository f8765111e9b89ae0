"""Prometheus' text format, for files that the textfile collector of the node exporter publishes."""

from collections.abc import Mapping, Sequence

from rag_core.telemetry.metrics import Labels, Metric

ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def format_metrics(samples: Mapping[Metric, Sequence[tuple[Labels, float]]]) -> str:
    """The lines of the metrics. A metric without samples has only its description."""
    lines = []
    for metric, values in samples.items():
        lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
        for labels, value in values:
            pairs = ",".join(f'{name}="{text.translate(ESCAPES)}"' for name, text in labels.items())
            lines.append(f"{metric.name}{{{pairs}}} {float(value)!r}")
    return "\n".join([*lines, ""])
