"""The parts of a report that HTML and Markdown show alike."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from rag_core.evaluation.significance import Estimate

NO_CHART = Markup("")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Cells of text. `plots` are charts that become a last column of HTML, one for each row, or none."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    plots: Sequence[Markup] = ()
    plot_heading: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part with a heading. `chart` is only in HTML."""

    id: str
    title: str
    note: str = ""
    chart: Markup = NO_CHART
    tables: Sequence[Table] = ()


def format_interval(estimate: Estimate) -> str:
    return f"{estimate.low:.3f} to {estimate.high:.3f}"


def format_difference(value: float) -> str:
    return f"{value:+.3f}"


def format_difference_interval(estimate: Estimate) -> str:
    return f"{estimate.low:+.3f} to {estimate.high:+.3f}"


def format_share(share: float) -> str:
    """A percentage that is 100 % only for all."""
    percent = 100.0 if share == 1 else min(round(100 * share, 1), 99.9)
    return f"{percent:g} %"


def format_time(time: str) -> str:
    """A time in ISO 8601 and UTC, to the minute; empty if it is."""
    return f"{time[:16].replace('T', ' ')} UTC" if time else ""


def join_values(value: Any) -> str:
    """A JSON value as text without brackets."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {join_values(inner)}" for name, inner in value.items())
    return str(value)
