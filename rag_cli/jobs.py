"""`rag jobs`."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from jobs.options import Globals, command, output, print_json
from rag_cli.opened import ledger
from rag_cli.output import show_facts, show_rows

app = typer.Typer(help="Jobs: what was done, when, and what failed.", no_args_is_help=True)


@app.command("list")
@command
def list_(options: Globals, limit: Annotated[int, typer.Option(help="How many at the most.", min=1)] = 20) -> None:
    """The jobs, newest first.

    Example: rag jobs list
    """
    with ledger(options) as known:
        rows = known.jobs(limit)
    shown = rows if options.json else [_brief(row) for row in rows]
    columns = ("job", "collection", "status", "documents", "failed", "same", "started_at", "seconds")
    show_rows(shown, columns, options, "no jobs yet: `rag ingest FOLDER` runs one")


def _brief(job: Mapping[str, Any]) -> dict[str, Any]:
    """With the beginning of its id, which is enough to name it, and how long it took."""
    took = f"{(job['finished_at'] - job['started_at']).total_seconds():.1f}" if job["finished_at"] else ""
    return {**job, "job": str(job["id"])[:8], "seconds": took}


@app.command()
@command
def show(job: Annotated[str, typer.Argument(help="The job's id, or the beginning of it.")], options: Globals) -> None:
    """A job with its counts, stage times, failures and events.

    Example: rag jobs show 1f0c2ab4
    """
    with ledger(options) as known:
        found = known.job(job)
        counts, events = known.progress(found["id"]), known.events(found["id"])
        failures = known.failures(found["id"], "failed", "quarantined", "skipped")
    if options.json:
        print_json({**found, "counts": counts, "failures": failures, "events": events})
        return
    hidden = set() if options.verbose else {"settings"}
    facts = {**found, "counts": counts, "events": len(events)}
    show_facts({name: value for name, value in facts.items() if name not in hidden})
    console = output()
    for failure in failures:
        line = f"{failure['status']}: {failure['uri']}  {failure['stage']}: {failure['reason']}"
        console.print(line, markup=False, soft_wrap=True)
