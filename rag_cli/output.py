"""Tables for people, JSON for machines."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from jobs.options import Globals, print_json


def show_rows(rows: Sequence[Mapping[str, Any]], columns: Iterable[str], options: Globals, empty: str) -> None:
    """As a JSON list with everything, or as a table of these columns; `empty` says why there may be none."""
    if options.json:
        print_json(rows)
        return
    if not rows:
        Console(stderr=True, quiet=options.quiet).print(empty, markup=False)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    names = list(columns)
    for name in names:
        table.add_column(name, overflow="fold", justify="right" if isinstance(rows[0][name], int) else "left")
    for row in rows:
        table.add_row(*(_cell(row[name]) for name in names))
    Console().print(table)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if hasattr(value, "strftime"):
        return str(value.strftime("%Y-%m-%d %H:%M:%S"))
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)
