"""`rag ingest --server`: what is read here is worked on there. The server need not see this machine's files."""

import inspect
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias
from urllib.parse import unquote

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from jobs.confirmation import confirm
from jobs.options import GlobalOptions, command, print_json, stdout_console
from rag_cli.question_options import refuse_local_options
from rag_core.errors import ConfigError, DocumentError, RagError, UsageError, error_from_reason

if TYPE_CHECKING:
    from rag_cli.server_client import File
    from rag_core.ingestion.sources.files import FilesSource

MEGABYTE = 1_000_000
MAX_BATCH_FILES = 1_000
LARGEST_BATCH = 64 * MEGABYTE
LARGEST_FILE = 50 * MEGABYTE
"""What one request may bring is the server's to say; this is what it says."""
SHOWN_FAILURES = 20
SPOKEN = 10.0
"""Seconds between lines of progress where there is no terminal to redraw."""
MEANT_THERE = {"sources", "collection", "no_prune", "yes", "checksum", "meta", "profile", "json", "verbose", "quiet"}
"""Parameters that mean the same there as here."""
PUSHED = "push:///"

Failure: TypeAlias = Mapping[str, Any]
Server = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Send it to a gateway there, and not to this store.", show_default=False),
]


def add_server_option(ingest: Callable[..., None]) -> Callable[..., None]:
    """The command with the option `--server`."""
    known = list(inspect.signature(ingest).parameters.values())
    shared = inspect.signature(GlobalOptions).parameters

    @wraps(ingest)
    def either(**values: Any) -> None:
        server = values.pop("server")
        if server is None:
            ingest(**values)
            return
        given = [each.name for each in known if values[each.name] not in (each.default, None, [], ())]
        push(
            server=server,
            asked=PushRequest(**{name: values[name] for name in PushRequest.__slots__}),
            meaningless=[name for name in given if name not in MEANT_THERE],
            **{name: values[name] for name in shared},
        )

    option = inspect.Parameter("server", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Server)
    either.__signature__ = inspect.Signature([*known, option])  # type: ignore[attr-defined]
    return either


@dataclass(frozen=True, slots=True, kw_only=True)
class PushRequest:
    """As `rag ingest` names it."""

    sources: Sequence[str]
    collection: str
    no_prune: bool
    yes: bool
    checksum: bool
    meta: Sequence[str] | None

    @property
    def remote(self) -> list[str]:
        """What the server can list itself."""
        return [each for each in self.sources if "://" in each and not each.startswith("file://")]

    @property
    def local(self) -> list[str]:
        return [each for each in self.sources if each not in self.remote]

    @property
    def metadata(self) -> dict[str, str]:
        """ConfigError for what is no KEY=VALUE."""
        if wrong := next((pair for pair in self.meta or () if not re.fullmatch(r"[^=]+=.*", pair, re.DOTALL)), ""):
            raise ConfigError(f"--meta takes KEY=VALUE, got {wrong!r}")
        return dict(pair.split("=", 1) for pair in self.meta or ())


@command
def push(server: str, asked: PushRequest, meaningless: Sequence[str], options: GlobalOptions) -> None:
    """Exits as `rag ingest` does."""
    _refuse(asked, meaningless)
    console = Console(stderr=True, quiet=options.quiet)
    sent = Push(server=server, asked=asked, profile=options.profile or "")
    try:
        sent.send(console)
        ended = [_followed(server, job, documents, console) for job, documents in sent.jobs.items()]
    except KeyboardInterrupt:
        _leave(server, sent.jobs, options)
        raise
    failed = next((job for job in ended if job["status"] != "completed"), None)
    if not (failed and options.json):  # of a failure there is one document only, too
        _show(sent, ended, options)
    if failed:
        raise _why(failed)
    if sent.failures or any(job["counts"]["failed"] for job in ended):
        raise typer.Exit(1)


def _refuse(asked: PushRequest, meaningless: Sequence[str]) -> None:
    refuse_local_options(meaningless)
    if asked.remote and asked.metadata:
        raise UsageError(f"--meta with --server is of files that are sent, and not of {' '.join(asked.remote)}")


@dataclass(slots=True, kw_only=True)
class Push:
    """`jobs` are those that the server has made of it, with how many documents each was given. `failures` came to none
    of them; `skipped` counts files that hold nothing."""

    server: str
    asked: PushRequest
    profile: str
    jobs: dict[str, int] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    skipped: int = 0

    def send(self, console: Console) -> None:
        from rag_cli.server_client import check_server, send_files, send_source

        check_server(self.server)
        for batch in self._batches():
            self._entered(send_files(self.server, self._fields(), batch), batch)
            console.print(f"{sum(self.jobs.values())} documents sent", highlight=False)
        if self.asked.remote:
            self._entered(send_source(self.server, self._source()), ())
        if self.asked.local and not self.asked.no_prune:
            console.print("note: what is no longer in these folders stays there: a push deletes nothing")

    def _entered(self, answer: Mapping[str, Any], batch: "Sequence[File]") -> None:
        """Also of a request of which everything was refused, which has no job."""
        if "job_id" in answer:
            self.jobs[answer["job_id"]] = answer["documents"]
        for row in answer.get("items", ()):
            if "problem" in row:
                self.failures.append(_failure(batch[row["index"]].uri, "push", row["problem"]["detail"]))

    def _batches(self) -> "Iterator[list[File]]":
        batch: list[File] = []
        size = 0
        for file in self._files():
            if batch and (len(batch) == MAX_BATCH_FILES or size + len(file.body) > LARGEST_BATCH):
                yield batch
                batch, size = [], 0
            batch.append(file)
            size += len(file.body)
        if batch:
            yield batch

    def _files(self) -> "Iterator[File]":
        """Those that can be sent, each once; of the others it keeps why not."""
        from rag_core.settings import load_settings

        seen: set[str] = set()
        for source in _sources(self.asked.local, load_settings()):
            for entry in source.listing():
                if entry.uri not in seen:
                    seen.add(entry.uri)
                    yield from self._file(source, entry)

    def _file(self, source: "FilesSource", entry: Any) -> "Iterator[File]":
        try:
            body = source.read(entry)
        except DocumentError as error:
            if error.status == "skipped":
                self.skipped += 1
            else:
                self.failures.append(_failure(entry.uri, error.stage, error.reason, error.retryable))
            return
        if body.strip():
            yield File(uri=entry.uri, body=body)
        else:
            self.skipped += 1

    def _fields(self) -> dict[str, str]:
        profile = {"profile": self.profile} if self.profile else {}
        metadata = self.asked.metadata
        about = {"metadata": json.dumps(metadata)} if metadata else {}
        return {"collection": self.asked.collection, **profile, **about}

    def _source(self) -> dict[str, Any]:
        asked = self.asked
        source = {
            "type": "files",
            "locations": asked.remote,
            "prune": not asked.no_prune,
            "confirmed": asked.yes,
            "checksum": asked.checksum,
        }
        return {"collection": asked.collection, "profile": self.profile or None, "source": source}


def _sources(locations: Iterable[str], settings: Any) -> "list[FilesSource]":
    from rag_core.ingestion.sources.files import FilesSource

    files = settings.files
    largest = LARGEST_FILE / MEGABYTE
    return [FilesSource.open(each, files.include, files.exclude, files.recursive, largest) for each in locations]


def _failure(uri: str, stage: str, reason: str, retryable: bool = False) -> Failure:
    return {"uri": uri, "stage": stage, "reason": reason, "retryable": retryable}


def _followed(server: str, job: str, documents: int, console: Console) -> Mapping[str, Any]:
    """The job with all its failures, when it has ended."""
    from rag_cli.server_client import job_events, read_ended_job

    with _Shown(console, documents) as shown:
        for event in job_events(server, job):
            shown.update(event)
    return read_ended_job(server, job)


class _Shown:
    """A bar on a terminal; elsewhere a line now and then."""

    def __init__(self, console: Console, documents: int) -> None:
        self._console, self._spoken = console, monotonic()
        self._bar = Progress(
            TextColumn("{task.description:9}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            console=console,
            transient=not console.is_terminal,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("queued", total=documents, rate="")

    def __enter__(self) -> "_Shown":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def update(self, event: Mapping[str, Any]) -> None:
        rate = f"{event['docs_per_s']:.0f} documents/s" if event.get("docs_per_s") else ""
        done, total = event.get("done", 0), event.get("total", 0)
        self._bar.update(self._task, completed=done, total=total, description=str(event["status"]), rate=rate)
        if not self._console.is_terminal and monotonic() - self._spoken > SPOKEN:
            self._spoken = monotonic()
            self._console.print(f"{done} of {total} documents  {rate}", highlight=False)


def _leave(server: str, jobs: Iterable[str], options: GlobalOptions) -> None:
    """Cancels what was sent if the user says so. Else it goes on without this process."""
    from rag_cli.server_client import cancel_job

    left = list(jobs)
    if not left:
        return
    if _wanted(options, f"Cancel what the server does? ({len(left)} job{'s' if len(left) > 1 else ''})"):
        for job in left:
            cancel_job(server, job)
        return
    for job in left:
        typer.echo(f"job {job} goes on there; to watch it: curl -N {server.rstrip('/')}/v1/jobs/{job}/events", err=True)


def _wanted(options: GlobalOptions, question: str) -> bool:
    try:
        return confirm(question, options)
    except typer.Abort:  # once more Ctrl-C
        return False


def _why(job: Mapping[str, Any]) -> RagError:
    if job["status"] == "cancelled":
        return RagError(f"job {job['job_id']} was cancelled")
    return error_from_reason(job["reason"] or f"job {job['job_id']} failed")


def _show(sent: Push, ended: Sequence[Mapping[str, Any]], options: GlobalOptions) -> None:
    report = report_json(sent, ended)
    if options.json:
        print_json(report)
        return
    console = stdout_console(options.quiet)
    counts = ", ".join(f"{count:,} {name}" for name, count in report["documents"].items() if count)
    console.print(f"{sent.asked.collection}: {counts or 'nothing to do'}", markup=False)
    for failure in report["failures"][:SHOWN_FAILURES]:
        console.print(
            f"failed: {failure['uri']}  {failure['stage']}: {failure['reason']}", markup=False, soft_wrap=True
        )
    hidden = len(report["failures"]) - SHOWN_FAILURES
    if hidden > 0:
        console.print(f"... and {hidden} more: --json tells of all")


def report_json(sent: Push, ended: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Counts as `rag ingest --json` has them, of all jobs together and of what came to none."""
    here = {"failed": len(sent.failures), "skipped": sent.skipped, "listed": len(sent.failures) + sent.skipped}
    counts: Counter[str] = Counter()
    for each in (*(job["counts"] for job in ended), here):
        counts.update(each)
    there = [{**failure, "uri": _own_uri(failure["uri"])} for job in ended for failure in job["failures"]]
    return {
        "job_ids": [job["job_id"] for job in ended],
        "collection": sent.asked.collection,
        "documents": dict(counts),
        "failures": [*sent.failures, *there],
    }


def _own_uri(uri: str) -> str:
    """What a file that was pushed is called here."""
    return unquote(uri.removeprefix(PUSHED)) if uri.startswith(PUSHED) else uri
