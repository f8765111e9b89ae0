"""Brings a collection in step with its sources: `rag ingest`, and `ray job submit -- python -m jobs.ingest`."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from jobs.confirmation import says_yes
from jobs.options import Globals, command, output, print_json
from jobs.progress import JobProgress
from jobs.runner import EVERYTHING, STDERR, RayRunner, Resources
from rag_core.config import Settings
from rag_core.detection import DEFAULT_PROFILE, chosen_profile
from rag_core.errors import ConfigError, ConfirmationError, UsageError
from rag_core.ingestion.report import ENDS
from rag_core.settings import profile_signs
from rag_core.types import DEFAULT_COLLECTION, Metadata

MEGABYTE = 1_000_000
SHOWN_FAILURES = 20


class RunnerName(StrEnum):
    auto = "auto"
    inline = "inline"
    ray = "ray"


@command
def ingest(
    sources: Annotated[list[str], typer.Argument(help="Folders, files, or URIs such as s3://bucket/docs.")],
    options: Globals,
    collection: Annotated[str, typer.Option(help="The collection to bring in step.")] = DEFAULT_COLLECTION,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    no_prune: Annotated[bool, typer.Option("--no-prune", help="Keep what is no longer there.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete also a large share of a source.")] = False,
    checksum: Annotated[bool, typer.Option("--checksum", help="Read and compare everything.")] = False,
    meta: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Metadata of all these documents.", show_default=False),
    ] = None,
    runner: Annotated[
        RunnerName, typer.Option(help="Where the work is done; `auto` takes Ray when it is worth it.")
    ] = (RunnerName.auto),
    cpus: Annotated[
        int | None, typer.Option(min=1, help="CPUs that the job may take of Ray's.", show_default=False)
    ] = None,
    gpus: Annotated[int, typer.Option(min=0, help="GPUs to embed on; the profile's `device` must be `cuda`.")] = 0,
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="Embedding processes at the most.", show_default=False)
    ] = None,
) -> None:
    """Bring a collection in step with its sources: what was added, changed and deleted there, and nothing else.

    Example: rag ingest docs/ --collection handbook
    """
    from rag_core.ingestion.sync import Options
    from rag_core.storage.postgres import Postgres
    from rag_core.wiring.ingestion import refuse_missing_devices, sync

    resources = Resources(cpus=cpus, gpus=gpus, actors=concurrency)
    if runner is RunnerName.inline and resources != EVERYTHING:
        raise UsageError("--cpus, --gpus and --concurrency are shares of Ray: not with --runner inline")
    options = with_profile(options, sources, meta or ())
    settings = options.settings
    postgres = Postgres.open(settings.store.url)
    chosen = Options(prune=not no_prune, confirmed=yes, checksum=checksum)
    job = sync(settings, postgres, sources, collection, chosen)
    chosen_runner = runner_named(runner, settings, resources)
    if dry_run:
        _show_plan(job.plan(), options)
        return
    if "RAY_ADDRESS" not in os.environ:  # else other machines embed
        refuse_missing_devices(settings)
    # its own descriptor: the Ray runner takes standard error away from Ray's native code
    with (
        os.fdopen(os.dup(STDERR), "w", buffering=1) as terminal,
        JobProgress(postgres, settings.tenant, Console(file=terminal, quiet=options.quiet)) as progress,
    ):
        try:
            report = job.run(chosen_runner, progress.begin)
        except ConfirmationError as error:
            progress.listed()
            if not says_yes(f"{error}\nDelete them?", options):
                raise
            again = sync(
                settings, postgres, sources, collection, Options(prune=True, confirmed=True, checksum=checksum)
            )
            report = again.run(chosen_runner, progress.begin)
    show_report(report, options)
    if report.documents["failed"]:
        raise typer.Exit(1)


def with_profile(options: Globals, locations: Sequence[str], meta: Sequence[str]) -> Globals:
    """With the profile that was named, else the one that all sources are recognised as, else the default.

    A source is recognised by its own uri and by the metadata that is set for all documents (`--meta`, or
    `metadata.set`); its documents are not looked into. What is read with a detected profile is searched with it, too:
    `rag search` wants it named.
    """
    if wrong := next((pair for pair in meta if not re.fullmatch(r"[^=.]+=.*", pair, re.DOTALL)), ""):
        raise ConfigError(f"--meta takes KEY=VALUE, and a key without dots, got {wrong!r}")
    described = replace(options, set=[*(options.set or ()), *(f"metadata.set.{pair}" for pair in meta)])
    explicit = options.profile or os.environ.get("RAG_PROFILE", "")
    about = [] if explicit else _about(described.settings, locations)
    chosen = chosen_profile(explicit, about, profile_signs(options.config))
    if not explicit and chosen != DEFAULT_PROFILE and not options.quiet:
        typer.echo(f"profile {chosen}, by what the sources are called; --profile {DEFAULT_PROFILE} for none", err=True)
    return replace(described, profile=chosen)


def _about(settings: Settings, locations: Sequence[str]) -> list[Metadata]:
    from rag_core.wiring.ingestion import source

    return [{**settings.metadata.set, "uri": source(settings, location).uri} for location in locations]


FEW_DOCUMENTS, FEW_MEGABYTES = 64, 1.0
"""Less than this a driver does itself, also where a cluster waits."""


@dataclass(frozen=True, slots=True)
class AutoRunner:
    """In this process, on all its CPUs, what would take longer on a Ray that has to start first; the rest on Ray."""

    settings: Settings
    resources: Resources

    def run(self, target: Any, sources: Mapping[int, Any], drafts: Sequence[Any]) -> Any:
        name = RunnerName.inline if self.takes_little(drafts) else RunnerName.ray
        return runner_named(name, self.settings, self.resources).run(target, sources, drafts)

    def takes_little(self, drafts: Sequence[Any]) -> bool:
        documents, megabytes = self.settings.ingestion.inline_documents, self.settings.ingestion.inline_mb
        if self.resources != EVERYTHING or "RAY_ADDRESS" in os.environ:
            documents, megabytes = min(documents, FEW_DOCUMENTS), min(megabytes, FEW_MEGABYTES)
        return len(drafts) < documents and sum(draft.entry.size for draft in drafts) < megabytes * MEGABYTE


def runner_named(name: RunnerName, settings: Settings, resources: Resources = EVERYTHING) -> Any:
    match name:
        case RunnerName.auto:
            return AutoRunner(settings, resources)
        case RunnerName.inline:
            from rag_core.wiring.ingestion import inline_runner

            return inline_runner(settings)
        case RunnerName.ray:
            return RayRunner(settings, resources)


def _show_plan(plan: Any, options: Globals) -> None:
    documents = {name: getattr(plan, name) for name in ("listed", "added", "changed", "deleted", "same")}
    if options.json:
        print_json({"dry_run": True, "collection": plan.collection, "documents": documents, "bytes": plan.bytes})
        return
    counts = ", ".join(f"{count} {name}" for name, count in documents.items())
    typer.echo(f"would bring {plan.collection} in step: {counts}; {plan.bytes / MEGABYTE:.1f} MB to read")


def show_report(report: Any, options: Globals) -> None:
    if options.json:
        print_json(report_json(report))
        return
    console = output(options.quiet)
    console.print(_table(report))
    told = [*report.failures, *report.quarantined]
    for failure in [*told, *(report.skipped if options.verbose else ())][:SHOWN_FAILURES]:
        line = f"{failure['status']}: {failure['uri']}  {failure['stage']}: {failure['reason']}"
        console.print(line, markup=False, soft_wrap=True)
    hidden = len(told) - SHOWN_FAILURES
    if hidden > 0:
        console.print(f"... and {hidden} more: rag jobs show {str(report.job_id)[:8]}")
    if report.dead_letters:
        again = f"rag jobs retry {str(report.job_id)[:8]}"
        console.print(f"{report.dead_letters} failed for the moment only: the next sync tries again, or {again}")
    for notice in report.notices:
        console.print(f"note: {notice}", markup=False)


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
        "quarantined": [{key: each[key] for key in ("uri", "reason")} for each in report.quarantined],
        "notices": list(report.notices),
    }


def _table(report: Any) -> Table:
    table = Table(title=f"{report.collection} is in step", title_justify="left", show_header=False, box=None)
    documents, chunks, seconds = report.documents, report.chunks, report.seconds
    table.add_row("documents", _counts(documents, ("listed", "added", "changed", "deleted", "same")))
    table.add_row(
        "of these", _counts(documents, tuple(name for name in ENDS if documents[name] or name == "completed"))
    )
    table.add_row("chunks", _counts(chunks, ("stored", "embedded", "reused", "deleted")))
    table.add_row("seconds", ", ".join(f"{seconds[name]:.2f} {name.replace('_', '+')}" for name in seconds))
    rate = report.rate
    table.add_row("rate", f"{rate['documents_per_second']} documents/s, {rate['chunks_per_second']} chunks/s")
    table.add_row("job", str(report.job_id))
    return table


def _counts(counts: Mapping[str, int], names: Sequence[str]) -> str:
    return ", ".join(f"{counts[name]:,} {name}" for name in names)


def main() -> None:
    app = typer.Typer(add_completion=False)
    app.command()(ingest)
    app()


if __name__ == "__main__":
    main()
