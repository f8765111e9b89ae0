"""`rag ingest --server`: sends local files to a gateway, which ingests them and needs no access to this machine."""

import inspect
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import unquote

import typer
from rich.console import Console

from jobs.ingest import MEGABYTE
from rag_cli.ingest import MAX_SHOWN_FAILURES
from rag_cli.question_options import refuse_local_options
from rag_cli.terminal.confirmation import confirm
from rag_cli.terminal.consoles import stdout_console
from rag_cli.terminal.options import GlobalOptions, command, print_json
from rag_cli.terminal.progress import ProgressLines, documents_bar
from rag_cli.termination import stop_on_sigterm
from rag_core.errors import ConfigError, DocumentError, RagError, ScopeError, UsageError, error_from_reason
from rag_core.ingestion.watch import Check, never_stop
from rag_core.wire.jobs import FailedDocument, Job

if TYPE_CHECKING:
    from rag_cli.server_client import File, Receipt
    from rag_core.ingestion.sources.files import FilesSource

MAX_BATCH_FILES = 1_000
MAX_FILES_WITHOUT_BULK = 100
"""Files of a request of a caller without the scope `ingest:bulk`: the default of `ingestion.bulk_documents`."""
MAX_BATCH_BYTES = 64 * MEGABYTE
MAX_FILE_BYTES = 50 * MEGABYTE
"""The server's limits for one request, and for one file in it."""
SERVER_PARAMETERS = frozenset(
    {"sources", "collection", "no_prune", "yes", "checksum", "meta", "profile", "json", "verbose", "quiet"}
)
"""The parameters of `rag ingest` that also work with a server."""
PUSHED_PREFIX = "push:///"

IngestServerOption = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Send files and sources to this gateway.", show_default=False),
]


def add_server_option(ingest: Callable[..., None]) -> Callable[..., None]:
    """The command with the additional option `--server`."""
    parameters = list(inspect.signature(ingest).parameters.values())
    global_names = inspect.signature(GlobalOptions).parameters

    @wraps(ingest)
    def run(**values: Any) -> None:
        server = values.pop("server")
        if server is None:
            ingest(**values)
            return
        explicit_names = [
            parameter.name
            for parameter in parameters
            if values[parameter.name] not in (parameter.default, None, [], ())
        ]
        push(
            server=server,
            request=PushRequest(**{name: values[name] for name in PushRequest.__slots__}),
            local_options=[name for name in explicit_names if name not in SERVER_PARAMETERS],
            **{name: values[name] for name in global_names},
        )

    option = inspect.Parameter("server", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=IngestServerOption)
    run.__signature__ = inspect.Signature([*parameters, option])  # type: ignore[attr-defined]
    return run


@dataclass(frozen=True, slots=True, kw_only=True)
class PushRequest:
    """The parameters of `rag ingest` that concern the server."""

    sources: Sequence[str]
    collection: str
    no_prune: bool
    yes: bool
    checksum: bool
    meta: Sequence[str] | None

    @property
    def remote_sources(self) -> list[str]:
        """The sources that the server itself can list and read."""
        return [source for source in self.sources if "://" in source and not source.startswith("file://")]

    @property
    def local_sources(self) -> list[str]:
        return [source for source in self.sources if source not in self.remote_sources]

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of all documents. Raises ConfigError if an option is not KEY=VALUE."""
        if invalid := next((pair for pair in self.meta or () if not re.fullmatch(r"[^=]+=.*", pair, re.DOTALL)), ""):
            raise ConfigError(f"--meta must be KEY=VALUE, got {invalid!r}")
        return dict(pair.split("=", 1) for pair in self.meta or ())


@command
def push(server: str, request: PushRequest, local_options: Sequence[str], options: GlobalOptions) -> None:
    """Sends the sources and follows the jobs. The exit codes are those of `rag ingest`."""
    refuse_local_options(local_options)
    if request.remote_sources and request.metadata:
        sources = " ".join(request.remote_sources)
        raise UsageError(
            f"--meta with --server applies to files that are sent, not to sources of the server: {sources}"
        )
    console = Console(stderr=True, quiet=options.quiet)
    sent = Push(server=server, request=request, profile=options.profile or "")
    try:
        with stop_on_sigterm() as check:
            sent.send(console, check)
            jobs = [_follow_job(server, job, documents, console, check) for job, documents in sent.jobs.items()]
    except KeyboardInterrupt:
        _offer_cancellation(server, list(sent.jobs), options)
        raise
    failed = next((job for job in jobs if job.status != "completed"), None)
    if not (failed and options.json):  # a failure prints its own JSON document
        _print_push(sent, jobs, options)
    if failed and failed.status == "cancelled":
        raise RagError(f"job {failed.job_id} was cancelled")
    if failed:
        raise error_from_reason(failed.reason or f"job {failed.job_id} failed")
    if sent.failures or any(job.counts["failed"] for job in jobs):
        raise typer.Exit(1)


@dataclass(slots=True, kw_only=True)
class Push:
    """An upload of sources to a server. `jobs` maps the ids of the server's jobs to their counts of documents.

    `failures` has the documents that are not in any job. `skipped` counts files that are empty or excluded by a limit.
    `max_files` is the number of files of a request, which the server can lower.
    """

    server: str
    request: PushRequest
    profile: str
    jobs: dict[str, int] = field(default_factory=dict)
    failures: list[FailedDocument] = field(default_factory=list)
    skipped: int = 0
    max_files: int = field(default_factory=lambda: MAX_BATCH_FILES)

    def send(self, console: Console, check: Check = never_stop) -> None:
        from rag_cli.server_client import check_server, send_source

        check_server(self.server)
        for batch in self._read_batches():
            check()
            self._send_batch(batch, console)
        if self.request.remote_sources:
            source = {
                "type": "files",
                "locations": self.request.remote_sources,
                "prune": not self.request.no_prune,
                "confirmed": self.request.yes,
                "checksum": self.request.checksum,
            }
            body = {"collection": self.request.collection, "profile": self.profile or None, "source": source}
            self._add_receipt(send_source(self.server, body), ())
        if self.request.local_sources and not self.request.no_prune:
            console.print("note: files that were deleted from these folders are not deleted on the server")

    def _send_batch(self, batch: "Sequence[File]", console: Console) -> None:
        """Sends the files in one request, or in smaller ones if the caller cannot ingest so many at once."""
        from rag_cli.server_client import send_files

        try:
            receipt = send_files(self.server, self._form_fields(batch[0].access), batch)
        except ScopeError as error:
            if error.scope != "ingest:bulk" or len(batch) <= MAX_FILES_WITHOUT_BULK:
                raise
            self.max_files = MAX_FILES_WITHOUT_BULK
            for start in range(0, len(batch), self.max_files):
                self._send_batch(batch[start : start + self.max_files], console)
            return
        self._add_receipt(receipt, batch)
        console.print(f"{sum(self.jobs.values())} documents sent", highlight=False)

    def _add_receipt(self, receipt: "Receipt", batch: "Sequence[File]") -> None:
        """Records the job, if the server accepted at least one file, and a failure for each rejected file."""
        if receipt.job:
            self.jobs[receipt.job] = receipt.documents
        for index, file in enumerate(batch):
            if index in receipt.rejected:
                self.failures.append(_describe_failure(file.uri, "push", receipt.rejected[index]))

    def _read_batches(self) -> "Iterator[list[File]]":
        """Yields lists of files that the same groups can read: a request has one list of groups for all files."""
        batch: list[File] = []
        size = 0
        for file in self._read_files():
            is_full = len(batch) >= self.max_files or size + len(file.body) > MAX_BATCH_BYTES
            if batch and (is_full or file.access != batch[0].access):
                yield batch
                batch, size = [], 0
            batch.append(file)
            size += len(file.body)
        if batch:
            yield batch

    def _read_files(self) -> "Iterator[File]":
        """Yields each file once. Records why a file cannot be sent."""
        from rag_core.ingestion.sources.files import FilesSource
        from rag_core.settings import load_settings

        files, file_mb = load_settings().files, MAX_FILE_BYTES / MEGABYTE
        # all are opened first, so that a wrong location is an error before anything is sent
        sources = [
            FilesSource.open(location, files.include, files.exclude, files.recursive, file_mb)
            for location in self.request.local_sources
        ]
        uris: set[str] = set()
        for source in sources:
            for entry in source.listing():
                if entry.uri not in uris:
                    uris.add(entry.uri)
                    yield from self._read_entry(source, entry)

    def _read_entry(self, source: "FilesSource", entry: Any) -> "Iterator[File]":
        from rag_cli.server_client import File

        try:
            body = source.read(entry)
        except DocumentError as error:
            if error.status == "skipped":
                self.skipped += 1
            else:
                self.failures.append(_describe_failure(entry.uri, error.stage, error.reason, error.retryable))
            return
        if body.strip():
            yield File(uri=entry.uri, body=body, access=entry.access)
        else:
            self.skipped += 1

    def _form_fields(self, access: Sequence[str] | None) -> dict[str, str]:
        """The fields of a form with files."""
        profile = {"profile": self.profile} if self.profile else {}
        metadata = self.request.metadata
        metadata_field = {"metadata": json.dumps(metadata)} if metadata else {}
        access_field = {} if access is None else {"access": json.dumps(list(access))}
        return {"collection": self.request.collection, **profile, **metadata_field, **access_field}


def _describe_failure(uri: str, stage: str, reason: str, retryable: bool = False) -> FailedDocument:
    return FailedDocument(uri=uri, stage=stage, reason=reason, retryable=retryable)


def _follow_job(server: str, job: str, documents: int, console: Console, check: Check) -> Job:
    """Shows the progress of the job until it has ended. Returns the job with all its failures."""
    from rag_cli.server_client import job_events, read_ended_job

    bar, lines = documents_bar(console), ProgressLines(console)
    task = bar.add_task("queued", total=documents, rate="")
    with bar:
        for event in job_events(server, job):
            check()
            rate = f"{event.docs_per_s:.0f} documents/s" if event.docs_per_s else ""
            bar.update(task, completed=event.done, total=event.total, description=event.status, rate=rate)
            lines.print(f"{event.done} of {event.total} documents  {rate}")
    return read_ended_job(server, job)


def _offer_cancellation(server: str, jobs: Sequence[str], options: GlobalOptions) -> None:
    """Asks if the jobs should be cancelled. Otherwise they continue without this process."""
    from rag_cli.server_client import cancel_job

    if not jobs:
        return
    try:
        is_confirmed = confirm(f"Cancel {len(jobs)} job{'s' if len(jobs) > 1 else ''} on the server?", options)
    except typer.Abort:  # a second Ctrl-C
        is_confirmed = False
    for job in jobs:
        if is_confirmed:
            cancel_job(server, job)
        else:
            watch = f"curl -N {server.rstrip('/')}/v1/jobs/{job}/events"
            typer.echo(f"job {job} continues on the server; to watch it: {watch}", err=True)


def _print_push(sent: Push, jobs: Sequence[Job], options: GlobalOptions) -> None:
    report = report_json(sent, jobs)
    if options.json:
        print_json(report)
        return
    console = stdout_console(options.quiet)
    counts = ", ".join(f"{count:,} {name}" for name, count in report["documents"].items() if count)
    console.print(f"{sent.request.collection}: {counts or 'nothing to do'}", markup=False)
    for failure in report["failures"][:MAX_SHOWN_FAILURES]:
        console.print(f"failed: {failure.uri}  {failure.stage}: {failure.reason}", markup=False, soft_wrap=True)
    hidden = len(report["failures"]) - MAX_SHOWN_FAILURES
    if hidden > 0:
        console.print(f"... and {hidden} more; --json lists all of them")


def report_json(sent: Push, jobs: Iterable[Job]) -> dict[str, Any]:
    """The counts of `rag ingest --json`, over all jobs and the documents that are in no job.

    Failures have the uris of the local files.
    """
    unsent = {"failed": len(sent.failures), "skipped": sent.skipped, "listed": len(sent.failures) + sent.skipped}
    counts: Counter[str] = Counter()
    job_ids, failures = [], list(sent.failures)
    for job in jobs:
        counts.update(job.counts)
        job_ids.append(job.job_id)
        for failure in job.failures:
            if failure.uri.startswith(PUSHED_PREFIX):
                failure = failure.model_copy(update={"uri": unquote(failure.uri.removeprefix(PUSHED_PREFIX))})
            failures.append(failure)
    counts.update(unsent)
    return {
        "job_ids": job_ids,
        "collection": sent.request.collection,
        "documents": dict(counts),
        "failures": failures,
    }
