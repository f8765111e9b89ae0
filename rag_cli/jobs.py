"""`rag jobs`."""

import time
from collections.abc import Mapping
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.console import Console

from jobs.ingest import RunnerName, build_runner
from rag_cli.connections import open_ledger, open_store
from rag_cli.ingest import MAX_SHOWN_FAILURES, print_report
from rag_cli.terminal.consoles import stdout_console
from rag_cli.terminal.options import GlobalOptions, command, print_json
from rag_cli.terminal.progress import POLL_SECONDS, JobProgress
from rag_cli.terminal.tables import print_facts, print_more, print_rows
from rag_core.errors import NotFoundError
from rag_core.storage.ledger import CANCELLED, INTERRUPTED, Ledger

app = typer.Typer(help="Jobs: list, watch, cancel, retry and show them.", no_args_is_help=True)
JobArgument = Annotated[str, typer.Argument(help="The id of the job, or its first characters.")]
LimitOption = Annotated[int, typer.Option(help="The maximum number of jobs.", min=1)]


@app.command("list")
@command
def list_(options: GlobalOptions, limit: LimitOption = 20) -> None:
    """List the jobs, newest first.

    Example: rag jobs list
    """
    with open_ledger(options) as ledger:
        rows = [_with_interruption(row) for row in ledger.jobs(limit + 1)]
    shown_rows = rows[:limit]
    if not options.json:
        for row in shown_rows:
            row["job"] = str(row["id"])[:8]
            row["seconds"] = ""
            if row["finished_at"]:
                row["seconds"] = f"{(row['finished_at'] - row['started_at']).total_seconds():.1f}"
    columns = ("job", "collection", "status", "documents", "failed", "same", "started_at", "seconds", "reason")
    print_rows(shown_rows, columns, options, "no jobs yet; `rag ingest FOLDER` runs one")
    if len(rows) > limit:
        print_more(f"--limit {2 * limit}", options)


@app.command()
@command
def watch(job: JobArgument, options: GlobalOptions) -> None:
    """Follow a job until it ends, from any process. The exit code is 1 if the job or a document failed.

    Example: rag jobs watch 1f0c2ab4
    """
    postgres, tenant = open_store(options), options.settings.tenant
    console = Console(stderr=True, quiet=options.quiet)
    with open_ledger(options) as ledger:
        id = ledger.job(job)["id"]
        if ledger.job(str(id))["status"] == "queued":
            console.print("queued: the job starts when a worker is free", highlight=False)
        _wait_while(ledger, id, "queued")
        with JobProgress(postgres, tenant, console) as progress:
            progress.follow(id, sum(ledger.progress(id)[action] for action in ("added", "changed")))
            ended_job = _wait_while(ledger, id, "queued", "running")
    _print_status(ended_job, options)
    if ended_job["status"] != "completed" or ended_job["failed"]:
        raise typer.Exit(1)


@app.command()
@command
def cancel(job: JobArgument, options: GlobalOptions) -> None:
    """Cancel a job. Documents that it has published are kept; the next sync processes the others.

    Example: rag jobs cancel 1f0c2ab4
    """
    with open_ledger(options) as ledger:
        id = ledger.job(job)["id"]
        ledger.end(id, "cancelled", "by rag jobs cancel")
        _print_status(_with_interruption(ledger.job(str(id))), options)


@app.command()
@command
def retry(job: JobArgument, options: GlobalOptions) -> None:
    """Process the dead letters of a job again, with the configuration of the job.

    Dead letters are the documents that failed temporarily. Syncs process other failed documents again after a change
    of the document, or of settings that apply to it.

    Example: rag jobs retry 1f0c2ab4
    """
    from rag_core.wiring.ingestion import build_retry_sync, settings_from_job

    settings = options.settings
    postgres = open_store(options)
    with open_ledger(options) as ledger:
        row = ledger.job(job)
        letters = ledger.dead_letters(row["id"])
    if not letters:
        raise NotFoundError(f"job {row['id']} has no failed documents to retry")
    job_settings = settings_from_job(row, settings)
    sync = build_retry_sync(job_settings, postgres, row, letters)
    with JobProgress(postgres, settings.tenant, Console(stderr=True, quiet=options.quiet)) as progress:
        report = sync.run(build_runner(RunnerName.auto, job_settings, on_choice=progress.print), progress.begin)
    print_report(report, options)
    if report.documents["failed"]:
        raise typer.Exit(1)


@app.command()
@command
def show(job: JobArgument, options: GlobalOptions) -> None:
    """Show a job with its counts, stage times and failures; with --json also its events.

    Example: rag jobs show 1f0c2ab4
    """
    with open_ledger(options) as ledger:
        row = _with_interruption(ledger.job(job))
        counts, events = ledger.progress(row["id"]), ledger.events(row["id"])
        stages = [*ledger.job_stages(row["id"]), *ledger.stages(row["id"])]
        failures = ledger.failures(row["id"], "failed", "quarantined", "skipped", "cancelled")
    counts["same"] += row["same"]
    row["profile_version"] = row["settings"].get("version", "")
    if options.json:
        print_json({**row, "counts": counts, "stages": stages, "failures": failures, "events": events})
        return
    hidden = set() if options.verbose else {"settings"}
    facts = {**row, "counts": counts, "events": len(events)}
    print_facts({name: value for name, value in facts.items() if name not in hidden})
    console = stdout_console()
    for stage in stages:
        console.print(_stage_line(stage), markup=False, soft_wrap=True)
    reached = [failure for failure in failures if failure["reason"] not in (INTERRUPTED, CANCELLED)]
    for failure in reached if options.verbose else reached[:MAX_SHOWN_FAILURES]:
        line = f"{failure['status']}: {failure['uri']}  {failure['stage']}: {failure['reason']}"
        console.print(line, markup=False, soft_wrap=True)
    if len(reached) > MAX_SHOWN_FAILURES and not options.verbose:
        print_more("-v", options)
    if unreached := len(failures) - len(reached):
        console.print(f"{unreached} documents: {CANCELLED if row['status'] == 'cancelled' else INTERRUPTED}")


def _stage_line(stage: Mapping[str, Any]) -> str:
    """The name of a stage, its start and end, and for a stage of documents also its work."""
    start, end = (f"{stage[key]:%H:%M:%S.%f}"[:-3] if stage[key] else "-" for key in ("started_at", "finished_at"))
    work = f"{stage['seconds']:.2f} s for {stage['done']} documents" if "done" in stage else ""
    return f"{stage['stage']:10} {start:12} to {end:12}  {work}".rstrip()


def _wait_while(ledger: Ledger, id: UUID, *statuses: str) -> dict[str, Any]:
    """Waits until the job has none of these statuses, and returns it. A running job can become queued again."""
    while (row := _with_interruption(ledger.job(str(id))))["status"] in statuses:
        time.sleep(POLL_SECONDS)
    return row


def _with_interruption(job: Mapping[str, Any]) -> dict[str, Any]:
    """A copy with the status `interrupted` if the job was killed and not yet ended by the next sync of its sources."""
    row = {name: value for name, value in job.items() if name != "abandoned"}
    return {**row, "status": "interrupted"} if job["abandoned"] else row


def _print_status(job: Mapping[str, Any], options: GlobalOptions) -> None:
    if options.json:
        print_json(job)
    elif not options.quiet:
        typer.echo(f"{job['status']}  {job['reason'] or ''}".rstrip())
