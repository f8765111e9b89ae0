"""The result of a gate as metrics, so that an alert notices a regression, or that no evaluation has run."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from statistics import fmean

from rag_core.errors import InvalidRunError
from rag_core.evaluation.gate import GateResult
from rag_core.evaluation.measured_run import MeasuredRun
from rag_core.telemetry.metrics import Metric
from rag_core.telemetry.text_format import format_metrics

EVALUATION_TIME = Metric(
    name="rag_evaluation_timestamp_seconds",
    kind="gauge",
    labels=("profile", "dataset"),
    help="When the last evaluation ended, in seconds since 1970.",
)
GATE_PASSED = Metric(
    name="rag_gate_passed",
    kind="gauge",
    labels=("profile", "dataset"),
    help="1 if the last evaluation passed its gate, 0 if it failed or was inconclusive.",
)
SCORE = Metric(
    name="rag_evaluation_score",
    kind="gauge",
    labels=("profile", "dataset", "measure"),
    help="Mean of a measure over the questions of the last evaluation.",
)
GATE_METRICS = (EVALUATION_TIME, GATE_PASSED, SCORE)


def format_gate_metrics(result: GateResult, runs: Sequence[MeasuredRun]) -> str:
    """The metrics in Prometheus' text format. All datasets have the gate's one result.

    Raises InvalidRunError for two runs of the same dataset, whose metrics would have the same labels.
    """
    passed = float(result.outcome == "pass")
    name, count = Counter(run.name for run in runs).most_common(1)[0]
    if count > 1:
        raise InvalidRunError(f"metrics require one run of each dataset, got {count} of {name}; pass the folder of one")
    by_run = [(run, {"profile": run.profile, "dataset": run.name}) for run in runs]
    return format_metrics(
        {
            EVALUATION_TIME: [
                (labels, datetime.fromisoformat(run.finished).timestamp()) for run, labels in by_run if run.finished
            ],
            GATE_PASSED: [(labels, passed) for _, labels in by_run],
            SCORE: [
                ({**labels, "measure": measure}, fmean(values.values()))
                for run, labels in by_run
                for measure, values in run.values.items()
                if values
            ],
        }
    )
