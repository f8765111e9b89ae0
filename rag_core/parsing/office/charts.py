"""Charts as tables: their series are the columns."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from rag_core.parsing.blocks import Block, paragraph
from rag_core.parsing.office.numbers import apply_format
from rag_core.parsing.safe_xml import Element, element_text
from rag_core.parsing.tables import table

CHART = "{http://schemas.openxmlformats.org/drawingml/2006/chart}"

_PARAGRAPH = "{http://schemas.openxmlformats.org/drawingml/2006/main}p"


def chart_blocks(root: Element) -> Iterator[Block]:
    """Yields a chart's title, and its series as the columns of a table.

    Neighbouring series with the same x-values share a table. A series without x-values has the categories of the first.
    """
    title = root.find(f"{CHART}chart/{CHART}title")
    yield paragraph("" if title is None else " ".join(map(element_text, title.iter(_PARAGRAPH))))
    all_series = list(root.iter(f"{CHART}ser"))
    categories = next((points for series in all_series if (points := _read_points(series, "cat"))), {})
    for x_values, group in groupby(all_series, key=lambda series: _read_points(series, "xVal") or categories):
        columns = list(group)
        names = [" ".join(_read_points(series, "tx").values()) for series in columns]
        texts = [
            name or series.findtext(f"{CHART}tx/{CHART}v", "") for name, series in zip(names, columns, strict=True)
        ]
        values = [_read_points(series, "val") or _read_points(series, "yVal") for series in columns]
        indexes = sorted(x_values.keys() | {index for points in values for index in points})
        rows = [[x_values.get(index, ""), *(points.get(index, "") for points in values)] for index in indexes]
        yield table([["", *texts], *rows])


def _read_points(series: Element, role: str) -> dict[int, str]:
    """The values that a series has in a role (cat, val, xVal, yVal, tx), by index and as their format shows them."""
    values = series.find(f"{CHART}{role}")
    if values is None:
        return {}
    code = next((element.text or "" for element in values.iter(f"{CHART}formatCode")), "")
    date_system = series.getroottree().getroot().find(f"{CHART}date1904")
    first_year = 1900 if date_system is None or date_system.get("val") in ("0", "false") else 1904
    levels = [
        {
            int(index): apply_format(point.findtext(f"{CHART}v") or "", point.get("formatCode", code), first_year)
            for point in level.iter(f"{CHART}pt")
            if (index := point.get("idx", "")).isdecimal()
        }
        for level in reversed(list(values.iter(f"{CHART}lvl")) or [values])
    ]
    return _join_levels(levels)


def _join_levels(levels: Sequence[Mapping[int, str]]) -> dict[int, str]:
    """Joins the levels of nested categories, which are given from the outermost: 2023 Q1.

    A value of an outer level applies to all indexes up to the next value of that level.
    """
    *outer, inner = levels
    current = [""] * len(outer)
    joined: dict[int, str] = {}
    for index in sorted({index for level in levels for index in level}):
        current = [level.get(index, before) for level, before in zip(outer, current, strict=True)]
        joined[index] = " ".join(filter(None, (*current, inner.get(index, ""))))
    return joined
