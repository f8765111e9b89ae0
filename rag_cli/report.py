"""`rag report`."""

from pathlib import Path
from typing import Annotated

import typer

from rag_cli.terminal.options import GlobalOptions, command
from rag_cli.terminal.tables import print_rows
from rag_core.errors import UsageError


@command
def report(
    run: Annotated[Path, typer.Argument(help="The run to report on: a folder of rag evaluate --out.")],
    options: GlobalOptions,
    base: Annotated[
        str,
        typer.Option(
            metavar="RUN",
            help="Compare with this run, or with the `promoted` one, as rag gate does.",
            show_default=False,
        ),
    ] = "",
    gate_file: Annotated[
        Path | None,
        typer.Option("--gate", metavar="FILE", help="The limits of the verdict, as for rag gate.", show_default=False),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The HTML file; by default report.html in the run.", show_default=False),
    ] = None,
    md: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The Markdown file; by default report.md in the run.", show_default=False),
    ] = None,
) -> None:
    """Write the report of a finished run as one HTML file and as Markdown.

    The HTML needs no network. With --base it begins with the verdict of rag gate. A folder of several datasets has one
    report for each. Neither the store nor a model is needed.

    Example: rag report runs/tonight --base promoted
    """
    from jobs.evaluation_runs import find_runs
    from jobs.gate_file import read_gate
    from jobs.report_files import write_report
    from rag_core.evaluation.gate import Gate

    limits = read_gate(gate_file) if gate_file else Gate()
    folders = find_runs(run)
    if len(folders) > 1 and (html or md):
        raise UsageError(f"--html and --md require a run of one dataset, got {len(folders)}")
    rows = [{"report": str(write_report(folder, base, limits, html, md))} for folder in folders]
    print_rows(rows, ("report",), options, "")
