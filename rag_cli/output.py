"""Tables for people, JSON for machines."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from jobs.options import Globals, output, print_json


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
    output().print(table)


def tell_more(option: str, options: Globals) -> None:
    """That the rows are not all, and how to see others."""
    if not options.quiet:
        typer.echo(f"... and more: {option}", err=True)


def show_facts(facts: Mapping[str, Any]) -> None:
    """One a line; those that say nothing are left out."""
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in facts.items():
        if value not in (None, "", [], {}):
            table.add_row(name, _cell(value))
    output().print(table)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_cell(each)}" for key, each in value.items())
    if hasattr(value, "strftime"):
        return str(value.strftime("%Y-%m-%d %H:%M:%S"))
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)
