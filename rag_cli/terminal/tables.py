"""Output of rows and values: tables for people, JSON for programs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from rag_cli.terminal.consoles import stdout_console
from rag_cli.terminal.options import GlobalOptions, print_json


def print_rows(rows: Sequence[Mapping[str, Any]], columns: Iterable[str], options: GlobalOptions, empty: str) -> None:
    """Prints the rows as JSON with all fields, or as a table of `columns`; `empty` is the message if there are none."""
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
        table.add_row(*(_format_cell(row[name]) for name in names))
    stdout_console().print(table)


def print_more(option: str, options: GlobalOptions) -> None:
    """Reports that there are more rows, and the option that shows them."""
    if not options.quiet:
        typer.echo(f"there are more; pass {option} to show them", err=True)


def print_facts(facts: Mapping[str, Any]) -> None:
    """Prints one value per line, without empty values."""
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in facts.items():
        if value not in (None, "", [], {}):
            table.add_row(name, _format_cell(value))
    stdout_console().print(table)


def _format_cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_format_cell(inner)}" for key, inner in value.items())
    if hasattr(value, "strftime"):
        return str(value.strftime("%Y-%m-%d %H:%M:%S"))
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)
