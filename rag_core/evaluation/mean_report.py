"""The means over the reports of several datasets. Every dataset has the same weight."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from rag_core.evaluation.stages import FINAL


def average_reports(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The mean of each measure of the hits, and of each measure of answers that all datasets have.

    The reports are of one way to search conversations, or of datasets without any.
    """
    averages = {
        "dataset": "mean",
        "datasets": [report["dataset"] for report in reports],
        "conversation": next((report["conversation"] for report in reports if report["conversation"]), None),
        "questions": sum(report["questions"] for report in reports),
        "stages": {FINAL: {"measures": _average([report["stages"][FINAL]["measures"] for report in reports])}},
    }
    if all("answers" in report for report in reports):
        averages["answers"] = {"measures": _average([report["answers"]["measures"] for report in reports])}
    return averages


def average_claim_reports(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The mean of each measure of the judge."""
    return {
        "dataset": "mean",
        "datasets": [report["dataset"] for report in reports],
        "claims": sum(report["claims"] for report in reports),
        "measures": _average([report["measures"] for report in reports]),
    }


def _average(measures: Sequence[Mapping[str, Mapping[str, float | None]]]) -> dict[str, dict[str, float]]:
    means = {}
    for name in measures[0]:
        values = [by_name[name]["mean"] for by_name in measures if name in by_name]
        numbers = [value for value in values if value is not None]
        if len(numbers) == len(measures):
            means[name] = {"mean": fmean(numbers)}
    return means
