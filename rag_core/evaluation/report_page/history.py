"""The runs before this one."""

from collections.abc import Sequence
from dataclasses import dataclass

from rag_core.evaluation.report_page.charts import draw_history
from rag_core.evaluation.report_page.section import Section, Table, format_time


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRun:
    """An earlier run of the same profile and dataset. `when` is empty if it is unknown."""

    name: str
    when: str
    value: float
    is_promoted: bool = False


def build_history(past: Sequence[PastRun]) -> Section | None:
    """The stored runs of the same profile and dataset, oldest first, with this run as the last one."""
    if len(past) < 2:
        return None
    rows = [
        (format_time(run.when) if run.when else "", run.name, f"{run.value:.3f}", "promoted" if run.is_promoted else "")
        for run in past
    ]
    return Section(
        id="history",
        title="History",
        note="nDCG@10 of the stored runs of this profile and dataset; the last one is this run.",
        chart=draw_history([run.value for run in past], f"nDCG@10 of {len(past)} runs, oldest first"),
        tables=[Table(caption="history", columns=("finished", "run", "nDCG@10", ""), rows=rows)],
    )
