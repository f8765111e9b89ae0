"""`rag jobs`."""

import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.console import Console

from jobs.ingest import SHOWN_FAILURES, RunnerName, runner_named, show_report
from jobs.options import Globals, command, output, print_json
from jobs.progress import POLL, JobProgress
from rag_cli.connections import ledger
from rag_cli.output import show_facts, show_rows, tell_more
from rag_core.errors import NotFoundError
from rag_core.storage.ledger import INTERRUPTED, Ledger
from rag_core.storage.postgres import Postgres

app = typer.Typer(help="Jobs: what was done, when, and what failed.", no_args_is_help=True)


JobArgument = Annotated[str, typer.Argument(help="The job's id, or the beginning of it.")]


@app.command("list")
@command
def list_(options: Globals, limit: Annotated[int, typer.Option(help="How many at the most.", min=1)] = 20) -> None:
    """The jobs, newest first.

    Example: rag jobs list
    """
    with ledger(options) as known:
        rows = [_seen(row) for row in known.jobs(limit + 1)]
    shown = rows[:limit] if options.json else [_brief(row) for row in rows[:limit]]
    columns = ("job", "collection", "status", "documents", "failed", "same", "started_at", "seconds", "reason")
    show_rows(shown, columns, options, "no jobs yet: `rag ingest FOLDER` runs one")
    if len(rows) > limit:
        tell_more(f"--limit {2 * limit}", options)


@app.command()
@command
def watch(job: JobArgument, options: Globals) -> None:
    """Follow a job until it ends, from any process. Exit code 1 if it failed or was killed, or a document failed.

    Example: rag jobs watch 1f0c2ab4
    """
    postgres, tenant = Postgres.open(options.settings.store.url), options.settings.tenant
    console = Console(stderr=True, quiet=options.quiet)
    with ledger(options) as known:
        id = known.job(job)["id"]
        if known.job(str(id))["status"] == "queued":
            console.print("queued: it begins when a runner of ingest jobs is free", highlight=False)
        _wait(known, id, "queued")
        with JobProgress(postgres, tenant, console) as progress:
            progress.follow(id, sum(known.progress(id)[action] for action in ("added", "changed")))
            ended = _wait(known, id, "queued", "running")
    _show_end(ended, options)
    if ended["status"] != "completed" or ended["failed"]:
        raise typer.Exit(1)


@app.command()
@command
def cancel(job: JobArgument, options: Globals) -> None:
    """End a job: what it has published stays, nothing more is written. The next sync does the rest.

    Example: rag jobs cancel 1f0c2ab4
    """
    with ledger(options) as known:
        id = known.job(job)["id"]
        known.end(id, "cancelled", "by rag jobs cancel")
        _show_end(_seen(known.job(str(id))), options)


@app.command()
@command
def retry(job: JobArgument, options: Globals) -> None:
    """Do the dead letters of a job once more, with the configuration that the job had: those of its documents that
    failed for the moment only. What failed for good is done again when it, or a setting that concerns it, changes.

    Example: rag jobs retry 1f0c2ab4
    """
    from rag_core.wiring.ingestion import retry as again
    from rag_core.wiring.ingestion import settings_of

    settings = options.settings
    postgres = Postgres.open(settings.store.url)
    with ledger(options) as known:
        found = known.job(job)
        letters = known.dead_letters(found["id"])
    if not letters:
        raise NotFoundError(f"job {found['id']} has no failed documents that a retry may heal")
    frozen = settings_of(found, settings)
    work = again(frozen, postgres, found, letters)
    with JobProgress(postgres, settings.tenant, Console(stderr=True, quiet=options.quiet)) as progress:
        report = work.run(runner_named(RunnerName.auto, frozen), progress.begin)
    show_report(report, options)
    if report.documents["failed"]:
        raise typer.Exit(1)


def _wait(known: Ledger, id: UUID, *states: str) -> dict[str, Any]:
    """The job, when it is in none of them. From running it may go back to the queue."""
    while (found := _seen(known.job(str(id))))["status"] in states:
        time.sleep(POLL)
    return found


def _seen(job: Mapping[str, Any]) -> dict[str, Any]:
    """`interrupted` while nobody has ended a job that was killed: the next sync of its sources will."""
    seen = {name: value for name, value in job.items() if name != "abandoned"}
    return {**seen, "status": "interrupted"} if job["abandoned"] else seen


def _show_end(job: Mapping[str, Any], options: Globals) -> None:
    if options.json:
        print_json(job)
    elif not options.quiet:
        typer.echo(f"{job['status']}  {job['reason'] or ''}".rstrip())


def _brief(job: Mapping[str, Any]) -> dict[str, Any]:
    """With the beginning of its id, which is enough to name it, and how long it took."""
    took = f"{(job['finished_at'] - job['started_at']).total_seconds():.1f}" if job["finished_at"] else ""
    return {**job, "job": str(job["id"])[:8], "seconds": took}


@app.command()
@command
def show(job: JobArgument, options: Globals) -> None:
    """A job with its counts, stage times and failures; with --json its events, too.

    Example: rag jobs show 1f0c2ab4
    """
    with ledger(options) as known:
        found = _seen(known.job(job))
        counts, events = known.progress(found["id"]), known.events(found["id"])
        failures = known.failures(found["id"], "failed", "quarantined", "skipped")
    counts["same"] += found["same"]
    if options.json:
        print_json({**found, "counts": counts, "failures": failures, "events": events})
        return
    hidden = set() if options.verbose else {"settings"}
    facts = {**found, "counts": counts, "events": len(events)}
    show_facts({name: value for name, value in facts.items() if name not in hidden})
    _show_failures(failures, options)


def _show_failures(failures: Sequence[Mapping[str, Any]], options: Globals) -> None:
    """The first of them, unless more is to be said; of documents that the job never came to, how many."""
    reached = [each for each in failures if each["reason"] != INTERRUPTED]
    console = output()
    for failure in reached if options.verbose else reached[:SHOWN_FAILURES]:
        line = f"{failure['status']}: {failure['uri']}  {failure['stage']}: {failure['reason']}"
        console.print(line, markup=False, soft_wrap=True)
    if len(reached) > SHOWN_FAILURES and not options.verbose:
        tell_more("-v", options)
    if left := len(failures) - len(reached):
        console.print(f"{left} documents: {INTERRUPTED}")
