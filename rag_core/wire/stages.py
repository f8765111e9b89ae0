"""The shape of a timed part of a request."""

from collections.abc import Sequence
from math import inf, isfinite
from typing import Self

from rag_core.types import StageReport
from rag_core.wire.shape import Milliseconds, Numbers, Shape


class Stage(Shape):
    """`began_ms` counts from the start of the request."""

    stage: str
    parent: str
    began_ms: float
    ms: float
    limit_ms: float | None
    error: str
    skipped: str
    figures: Numbers
    ranked: int

    @classmethod
    def describe(cls, report: StageReport) -> Self:
        return cls.from_value(
            report,
            began_ms=to_ms(report.started),
            ms=to_ms(report.seconds),
            limit_ms=to_ms(report.time_limit) if isfinite(report.time_limit) else None,
            ranked=len(report.ranking),
        )

    def to_report(self) -> StageReport:
        """The report without its ranking, of which only the length is sent."""
        limit = inf if self.limit_ms is None else self.limit_ms / 1000
        return self.to_value(StageReport, started=self.began_ms / 1000, seconds=self.ms / 1000, time_limit=limit)


def describe_stages(stages: Sequence[StageReport]) -> list[Stage]:
    return [Stage.describe(report) for report in sort_stages(stages)]


def sort_stages(stages: Sequence[StageReport]) -> list[StageReport]:
    """Sorts by start; of stages that start together the longest is first, because it encloses the others."""
    return sorted(stages, key=lambda report: (report.started, -report.seconds))


def sum_timings(stages: Sequence[StageReport], seconds: float) -> Milliseconds:
    """Milliseconds by stage, and their `total`, which is the whole duration."""
    return {**{report.stage: to_ms(report.seconds) for report in stages}, "total": to_ms(seconds)}


def to_ms(seconds: float) -> float:
    return round(seconds * 1000, 1)
