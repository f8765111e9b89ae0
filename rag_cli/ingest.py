"""`rag ingest`."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

import typer
from rich.table import Table

from jobs.ingest import MEGABYTE, RunnerName, build_runner
from jobs.ray_connection import UNLIMITED, Resources
from rag_cli.connections import open_store
from rag_cli.profile_choice import choose_settings
from rag_cli.terminal.confirmation import confirm
from rag_cli.terminal.consoles import stderr_console, stdout_console
from rag_cli.terminal.options import GlobalOptions, command, print_json
from rag_cli.terminal.progress import JobProgress
from rag_cli.termination import stop_on_sigterm
from rag_core.errors import ConfigError, ConfirmationError, UsageError
from rag_core.ingestion.report import DOCUMENT_STATUSES
from rag_core.text.titles import file_name
from rag_core.types import DEFAULT_COLLECTION

MAX_SHOWN_FAILURES, MAX_SHOWN_NAMES = 20, 5

RunnerOption = Annotated[RunnerName, typer.Option(help="Where to run the work; `auto` prints its choice.")]


@command
def ingest(
    sources: Annotated[
        list[str],
        typer.Argument(help="Folders, files, or URIs such as s3://bucket/docs; jsonl:FILE for a file of documents."),
    ],
    options: GlobalOptions,
    collection: Annotated[str, typer.Option(help="The collection to sync.")] = DEFAULT_COLLECTION,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would change, and change nothing.")] = False,
    no_prune: Annotated[
        bool, typer.Option("--no-prune", help="Keep documents that are no longer in the sources.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete even a large share of a source without asking.")] = False,
    checksum: Annotated[bool, typer.Option("--checksum", help="Read every file, even if it looks unchanged.")] = False,
    meta: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Metadata for all documents; repeatable.", show_default=False),
    ] = None,
    runner: RunnerOption = RunnerName.auto,
    cpus: Annotated[
        int | None, typer.Option(min=1, help="The maximum number of Ray CPUs for the job.", show_default=False)
    ] = None,
    gpus: Annotated[
        int, typer.Option(min=0, help="The number of GPUs for embedding; the profile's `device` must be `cuda`.")
    ] = 0,
    shared: Annotated[
        bool, typer.Option("--shared", help="All nodes of the Ray cluster share the local folders; do not ask them.")
    ] = False,
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="The maximum number of embedding processes.", show_default=False)
    ] = None,
) -> None:
    """Sync a collection with its sources: process new and changed files, and delete documents whose files were deleted.

    Example: rag ingest docs/ --collection handbook
    """
    from rag_core.ingestion.sync import SyncOptions
    from rag_core.wiring.ingestion import build_sync, check_devices

    resources = Resources(cpus=cpus, gpus=gpus, actors=concurrency)
    if runner is RunnerName.inline and resources != UNLIMITED:
        raise UsageError("--cpus, --gpus and --concurrency apply to Ray; they cannot be used with --runner inline")
    options = with_metadata(options, meta or ())
    if shared:
        options = replace(options, set=[*(options.set or ()), "ingestion.shared_folders=true"])
    settings = choose_settings(options, sources, collection)
    postgres = open_store(options)
    sync_options = SyncOptions(prune=not no_prune, confirmed=yes, checksum=checksum)
    job = build_sync(settings, postgres, sources, collection, sync_options)
    if dry_run:
        _print_plan(job.plan(), options)
        return
    if "RAY_ADDRESS" not in os.environ:  # on a cluster, other machines embed
        check_devices(settings)
    with (
        stderr_console(options.quiet) as console,
        JobProgress(postgres, settings.tenant, console) as progress,
        stop_on_sigterm() as check,
    ):
        job = replace(job, check=check)
        selected_runner = build_runner(runner, settings, resources, progress.print)
        try:
            report = job.run(selected_runner, progress.begin)
        except ConfirmationError as error:
            progress.stop_listing()
            if not confirm(f"{error}\nDelete them?", options):
                raise
            confirmed_job = replace(job, options=replace(sync_options, confirmed=True))
            report = confirmed_job.run(selected_runner, progress.begin)
    print_report(report, options)
    if report.documents["failed"]:
        raise typer.Exit(1)


def with_metadata(options: GlobalOptions, meta: Sequence[str]) -> GlobalOptions:
    """The options with the metadata of all documents. Raises ConfigError if a pair is not KEY=VALUE."""
    if invalid := next((pair for pair in meta if not re.fullmatch(r"[^=.]+=.*", pair, re.DOTALL)), ""):
        raise ConfigError(f"--meta must be KEY=VALUE with a key without dots, got {invalid!r}")
    return replace(options, set=[*(options.set or ()), *(f"metadata.set.{pair}" for pair in meta)])


def _print_plan(plan: Any, options: GlobalOptions) -> None:
    documents = {name: getattr(plan, name) for name in ("listed", "added", "changed", "deleted", "same")}
    if options.json:
        print_json({"dry_run": True, "collection": plan.collection, "documents": documents, "bytes": plan.bytes})
        return
    counts = ", ".join(f"{count} {name}" for name, count in documents.items())
    typer.echo(f"dry run of {plan.collection}: {counts}; {plan.bytes / MEGABYTE:.1f} MB to read")


def print_report(report: Any, options: GlobalOptions) -> None:
    if options.json:
        print_json(report_json(report))
        return
    console = stdout_console(options.quiet)
    console.print(_report_table(report))
    problems = [
        f"{row['status']}: {row['uri']}  {row['stage']}: {row['reason']}"
        for row in [*report.failures, *report.quarantined, *(report.skipped if options.verbose else ())]
    ]
    skipped = [] if options.verbose else describe_skipped(report.skipped)
    for line in problems[:MAX_SHOWN_FAILURES] + skipped[:MAX_SHOWN_FAILURES]:
        console.print(line, markup=False, soft_wrap=True)
    hidden = sum(max(0, len(lines) - MAX_SHOWN_FAILURES) for lines in (problems, skipped))
    if hidden > 0:
        console.print(f"... and {hidden} more: rag jobs show {str(report.job_id)[:8]}")
    if report.dead_letters:
        retry = f"rag jobs retry {str(report.job_id)[:8]}"
        console.print(
            f"{report.dead_letters} documents failed temporarily; run `{retry}`, or the next sync retries them"
        )
    for notice in report.notices:
        console.print(f"note: {notice}", markup=False)


def describe_skipped(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each reason, the most frequent first, with the names of the first documents."""
    names: dict[str, list[str]] = {}
    for row in rows:
        names.setdefault(row["reason"], []).append(file_name(row["uri"]))
    ordered = sorted(names.items(), key=lambda pair: -len(pair[1]))
    return [f"skipped: {reason} ({len(group)}): {_name_first(group)}" for reason, group in ordered]


def _name_first(names: Sequence[str]) -> str:
    ending = ", ..." if len(names) > MAX_SHOWN_NAMES else ""
    return ", ".join(names[:MAX_SHOWN_NAMES]) + ending


def report_json(report: Any) -> dict[str, Any]:
    return {
        "job_id": report.job_id,
        "collection": report.collection,
        "documents": report.documents,
        "chunks": report.chunks,
        "seconds": report.seconds,
        "rate": report.rate,
        "failures": [
            {key: failure[key] for key in ("uri", "stage", "reason", "retryable")} for failure in report.failures
        ],
        "dead_letters": report.dead_letters,
        "quarantined": [{key: row[key] for key in ("uri", "reason")} for row in report.quarantined],
        "skipped": [{key: row[key] for key in ("uri", "reason")} for row in report.skipped],
        "notices": list(report.notices),
    }


def _report_table(report: Any) -> Table:
    table = Table(title=f"{report.collection} is up to date", title_justify="left", show_header=False, box=None)
    documents, seconds, rate = report.documents, report.seconds, report.rate
    results = tuple(name for name in DOCUMENT_STATUSES if documents[name] or name == "completed")
    table.add_row("documents", _format_counts(documents, ("listed", "added", "changed", "deleted", "same")))
    table.add_row("results", _format_counts(documents, results))
    table.add_row("chunks", _format_counts(report.chunks, ("stored", "embedded", "reused", "deleted")))
    table.add_row("seconds", ", ".join(f"{seconds[name]:.2f} {name.replace('_', '+')}" for name in seconds))
    table.add_row("rate", f"{rate['documents_per_second']} documents/s, {rate['chunks_per_second']} chunks/s")
    table.add_row("job", str(report.job_id))
    return table


def _format_counts(counts: Mapping[str, int], names: Sequence[str]) -> str:
    return ", ".join(f"{counts[name]:,} {name}" for name in names)
