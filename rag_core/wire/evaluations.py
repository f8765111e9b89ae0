"""The shapes of finished evaluations: `/v1/evaluations`."""

from datetime import datetime
from typing import Any

from pydantic import Field

from rag_core.wire.shape import Page, Shape


class EvaluationRun(Shape):
    """The evaluation of a profile on one dataset.

    `coverage` is the lowest share of questions that a measure of answers covers; null if no answers were measured.
    """

    id: str
    dataset: str
    split: str
    profile: str
    pipeline_version: str | None
    created_at: datetime
    questions: int | None
    coverage: float | None
    promoted: bool = Field(description="true for the base that `rag gate` compares the next runs with")


class EvaluationRuns(Page):
    data: list[EvaluationRun]


class EvaluationReport(EvaluationRun):
    """A run with its report, as `rag evaluate --json` prints it, but without folder, machine and command."""

    report: dict[str, Any]
