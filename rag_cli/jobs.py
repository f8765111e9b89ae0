"""`rag jobs`."""

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from jobs.options import Globals, command, print_json
from rag_cli.opened import ledger
from rag_cli.output import show_rows

app = typer.Typer(help="Jobs: what was done, when, and what failed.", no_args_is_help=True)


@app.command("list")
@command
def list_(options: Globals, limit: Annotated[int, typer.Option(help="How many at the most.", min=1)] = 20) -> None:
    """The jobs, newest first.

    Example: rag jobs list
    """
    with ledger(options) as known:
        rows = known.jobs(limit)
    columns = ("id", "collection", "status", "documents", "failed", "same", "started_at", "finished_at")
    show_rows(rows, columns, options, "no jobs yet: `rag ingest FOLDER` runs one")


@app.command()
@command
def show(job: Annotated[str, typer.Argument(help="The job's id, or the beginning of it.")], options: Globals) -> None:
    """A job with its counts, stage times, failures and events.

    Example: rag jobs show 1f0c2ab4
    """
    with ledger(options) as known:
        found = known.job(job)
        counts, events = known.progress(found["id"]), known.events(found["id"])
        failures = known.failures(found["id"], "failed", "skipped")
    if options.json:
        print_json({**found, "counts": counts, "failures": failures, "events": events})
        return
    facts = Table(box=None, show_header=False, pad_edge=False)
    for key, value in {**found, "counts": counts, "events": len(events)}.items():
        if key != "settings" or options.verbose:
            facts.add_row(key, str(value))
    console = Console()
    console.print(facts)
    for failure in failures:
        line = f"{failure['status']}: {failure['uri']}  {failure['stage']}: {failure['reason']}"
        console.print(line, markup=False, highlight=False, soft_wrap=True)
