"""Measures a profile's retriever on questions with graded documents: `rag evaluate`, `python -m jobs.evaluate`."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from jobs.ingest import RunnerName, runner_named
from jobs.options import Globals, command, output, print_json
from jobs.progress import TERMINAL_LINE, JobProgress
from jobs.runner import STDERR
from rag_core.errors import DatasetError, RagError, UsageError

if TYPE_CHECKING:
    from rag_core.evaluation.dataset import Dataset, Question, Run
    from rag_core.evaluation.report import Comparison, Evaluation
    from rag_core.evaluation.significance import Estimate
    from rag_core.evaluation.stages import Judged, Latency, StageSummary, Trace
    from rag_core.ingestion.report import Report
    from rag_core.storage.postgres import Postgres

FEW_QUESTIONS = 2_000
"""Fewer are answered sooner than Ray has started. Where a cluster waits, half a minute's worth of them is few."""
FEW_FOR_A_CLUSTER = 200
SHOWN_MEASURES = {"nDCG@10": "ndcg@10", "R@10": "recall@10", "R@100": "recall@100", "MRR": "mrr", "MAP": "map"}
SHOWN_CHUNK_MEASURES = {
    "nDCG@10": "ndcg@10",
    "R@10": "recall@10",
    "Success@5": "success@5",
    "MRR": "mrr",
    "char R@10": "char_recall@10",
    "char IoU@5": "char_iou@5",
}
SHOWN_FAILURES = 5


@command
def evaluate(
    dataset: Annotated[Path, typer.Argument(help="A folder in BEIR's layout: corpus, queries.jsonl, qrels/.")],
    options: Globals,
    k: Annotated[int, typer.Option("-k", "--k", help="How many chunks are asked for.", min=10, max=1000)] = 100,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Only the first so many questions.", show_default=False)
    ] = None,
    split: Annotated[str, typer.Option(help="Whose grades: qrels/SPLIT.tsv.")] = "test",
    collection: Annotated[
        str | None, typer.Option(help="Where the corpus goes; one of its own by default.", show_default=False)
    ] = None,
    against: Annotated[
        Path | None, typer.Option(metavar="RUN", help="A TREC run to compare with.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write Parquet, TREC runs and JSON.", show_default=False)
    ] = None,
    runner: Annotated[
        RunnerName, typer.Option(help="Where the work is done; `auto` takes Ray when it is worth it.")
    ] = RunnerName.auto,
    callers: Annotated[int, typer.Option(min=1, help="Questions under way in a process at a time.")] = 1,
) -> None:
    """Measure a profile's retriever on a dataset: every stage's ranking, its time, and where documents were lost.

    The corpus goes into a collection of its own, through `rag ingest`'s own path; where it is in step, nothing is done.

    Example: rag evaluate data/scifact --profile default --out runs/scifact
    """
    from jobs.evaluation_files import make_folder, write_evaluation
    from jobs.queries import Asking
    from rag_core.evaluation.dataset import read_dataset, read_run
    from rag_core.evaluation.report import evaluation
    from rag_core.storage.postgres import Postgres

    began = time.perf_counter()
    chosen = read_dataset(dataset, split).first(limit)
    other = read_run(against) if against else None
    unanswered = _unanswered(chosen, split, against, other) if against and other is not None else []
    if out:
        make_folder(out)
    settings = options.settings
    name = collection or f"evaluation-{chosen.name}-{settings.profile}"
    postgres = Postgres.open(settings.store.url)
    # its own descriptor: Ray's native code is kept from standard error
    with os.fdopen(os.dup(STDERR), "w", buffering=1) as terminal:
        console = Console(file=terminal, quiet=options.quiet)
        report = ingested(chosen, name, postgres, runner, options, console)
        asked = settings.model_copy(update={"store": settings.store.model_copy(update={"url": postgres.dsn})})
        asking = Asking(settings=asked, collection=name, k=k, callers=callers)
        asked_at = time.perf_counter()
        traces = list(_followed(_asked(asking, chosen.questions, runner), len(chosen.questions), console))
        rate = len(traces) / (time.perf_counter() - asked_at)
    _refuse_silence(traces)
    found = evaluation(_judged(chosen, name, traces, postgres, settings.tenant), other)
    described = {
        "dataset": chosen.name,
        "split": split,
        "collection": name,
        "profile": settings.profile,
        "pipeline_version": settings.pipeline_version,
        "k": k,
        "callers": callers,
        "notices": [*_notices(report), *unanswered],
        "ingest_seconds": report.seconds,
        "questions_per_second": round(rate, 3),
        "seconds": round(time.perf_counter() - began, 3),
    }
    _tell(found, described, options)
    if out:
        write_evaluation(out, found, described)
    if found.failed:
        raise typer.Exit(1)


def ingested(
    dataset: "Dataset", collection: str, postgres: "Postgres", runner: RunnerName, options: Globals, console: Console
) -> "Report":
    """Brings the collection in step with the corpus."""
    from rag_core.evaluation.dataset import folder_name, read_corpus, write_documents
    from rag_core.ingestion.sync import Options
    from rag_core.storage.embedded import home
    from rag_core.wiring.ingestion import sync

    folder = dataset.corpus
    if not folder.is_dir():
        folder = home() / "evaluation" / folder_name(collection)
        write_documents(read_corpus(dataset.corpus), folder)
    settings = options.settings
    job = sync(settings, postgres, [str(folder)], collection, Options(confirmed=True))
    _refuse_strangers(postgres, settings.tenant, collection, job.sources[0].uri)
    with JobProgress(postgres, settings.tenant, console) as progress:
        return job.run(runner_named(runner, settings), progress.begin)


def _unanswered(dataset: "Dataset", split: str, against: Path, other: "Run") -> list[str]:
    """Of a run that lacks some of the questions, so many. UsageError if it lacks them all."""
    from rag_core.evaluation.report import answered

    count, total = answered(dataset.questions, other), len(dataset.questions)
    if not count:
        raise UsageError(
            f"--against must answer questions of {dataset.name}, split {split}, got none of {total} in {against}"
        )
    return [] if count == total else [f"{against} answers {count} of {total} questions: the others count as 0 there"]


def _notices(report: "Report") -> list[str]:
    """What is worth knowing of an ingest."""
    absent = {name: report.documents[name] for name in ("failed", "skipped", "quarantined") if report.documents[name]}
    counts = ", ".join(f"{count} documents {name}" for name, count in absent.items())
    return [*([f"not everything is searched: {counts}"] if counts else []), *report.notices]


def _refuse_strangers(postgres: "Postgres", tenant: str, collection: str, uri: str) -> None:
    """Other documents among those of the dataset would be wrong answers that are not."""
    from rag_core.storage.catalog import Catalog

    with postgres.connect() as connection:
        others = [each.uri for each in Catalog(connection, tenant).sources(collection) if each.uri != uri]
    if others:
        raise DatasetError(
            f"collection {collection!r} holds {others[0]} beside the dataset: drop it, or name another by --collection"
        )


def _asked(asking: Any, questions: "Sequence[Question]", runner: RunnerName) -> "Iterator[Trace]":
    from jobs.queries import ask_here, ask_on_ray

    few = FEW_FOR_A_CLUSTER if "RAY_ADDRESS" in os.environ else FEW_QUESTIONS
    here = len(questions) < few if runner is RunnerName.auto else runner is RunnerName.inline
    return (ask_here if here else ask_on_ray)(asking, questions)


def _followed(traces: "Iterator[Trace]", total: int, console: Console) -> "Iterator[Trace]":
    """A bar on a terminal; elsewhere a line now and then."""
    columns = (TextColumn("asking   "), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    spoken = time.monotonic()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("asking", total=total)
        for done, trace in enumerate(traces, start=1):
            bar.advance(task)
            if not console.is_terminal and time.monotonic() - spoken > TERMINAL_LINE:
                spoken = time.monotonic()
                console.print(f"{done} of {total} questions", highlight=False)
            yield trace


def _refuse_silence(traces: "Sequence[Trace]") -> None:
    if all(trace.error for trace in traces):
        raise RagError(f"no question could be answered: {traces[0].error}")


def _judged(
    dataset: "Dataset", collection: str, traces: "Sequence[Trace]", postgres: "Postgres", tenant: str
) -> "list[Judged]":
    """In the order of the questions."""
    from jobs.evaluation_store import answers_in, stored_of
    from rag_core.evaluation.stages import judged, judged_by_chunk

    rankings = ((trace.ranking, *(report.ranking for report in trace.stages)) for trace in traces)
    chunks = {id for of_one in rankings for ranking in of_one for id in ranking}
    stored = stored_of(chunks, dataset, collection, postgres, tenant)
    answers = answers_in(stored, dataset, postgres, tenant)
    documents, known = {id: place.document for id, place in stored.chunks.items()}, frozenset(stored.documents)
    by_question = {trace.question: trace for trace in traces}
    found = [judged(each, by_question[each.id], documents, known) for each in dataset.questions]
    return [
        judged_by_chunk(each, answers[each.question.id], stored.chunks) if each.question.id in answers else each
        for each in found
    ]


def _tell(found: "Evaluation", described: dict[str, Any], options: Globals) -> None:
    from rag_core.evaluation.report import as_json

    if options.json:
        print_json({**described, **as_json(found)})
        return
    console = output()
    console.print(_table(found, described))
    if found.headroom is not None:
        console.print(f"a perfect order of what the legs found would add {found.headroom:.3f} nDCG@10")
    for better in found.improvements:
        console.print(f"{better.stage} over {better.over}: {_difference(better.comparison)}", markup=False)
    console.print(_speed(described))
    console.print(_losses(found))
    if found.with_spans:
        console.print(_chunk_table(found))
    if found.comparison:
        console.print(_comparison(found.comparison))
    for each in found.failed[:SHOWN_FAILURES]:
        console.print(f"failed: question {each.question.id}  {each.trace.error}", markup=False, soft_wrap=True)
    if len(found.failed) > SHOWN_FAILURES:
        console.print(f"... and {len(found.failed) - SHOWN_FAILURES} more failed")
    for notice in described["notices"]:
        console.print(f"note: {notice}", markup=False)


def _table(found: "Evaluation", described: dict[str, Any]) -> Table:
    title = (
        f"{described['dataset']} with {described['profile']}: {len(found.questions)} questions, {described['k']} chunks"
    )
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    table.add_column("stage", no_wrap=True)
    for name in (*SHOWN_MEASURES, "p50 ms", "p95 ms", "errors"):
        table.add_column(name, justify="right")
    for each in found.stages:
        table.add_row(*_row(each))
    return table


def _chunk_table(found: "Evaluation") -> Table:
    unheld = f"; of {len(found.in_no_chunk)} no chunk holds any of it" if found.in_no_chunk else ""
    title = f"chunks, by the answer spans of {len(found.with_spans)} questions{unheld}"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    table.add_column("stage", no_wrap=True)
    for name in SHOWN_CHUNK_MEASURES:
        table.add_column(name, justify="right")
    for each in found.stages:
        if each.chunk_measures:
            values = (each.chunk_measures[name] for name in SHOWN_CHUNK_MEASURES.values())
            table.add_row(each.stage, *map(_interval, values))
    return table


def _row(summary: "StageSummary") -> list[str]:
    measures = [_interval(summary.measures[name]) if summary.measures else "" for name in SHOWN_MEASURES.values()]
    return [summary.stage, *measures, *_milliseconds(summary.latency), str(summary.errors or "")]


def _interval(value: "Estimate") -> str:
    """The mean, and between which values it lies with 95 % confidence."""
    return f"{_decimal(value.mean, 3)} {_decimal(value.low, 2)}-{_decimal(value.high, 2)}"


def _decimal(value: float, places: int) -> str:
    return f"{value:.{places}f}".removeprefix("0")


def _milliseconds(latency: "Latency | None") -> list[str]:
    return [f"{seconds * 1000:.1f}" for seconds in (latency.p50, latency.p95)] if latency else ["", ""]


def _losses(found: "Evaluation") -> str:
    total, kept = sum(found.lost.values()), found.lost[""]
    places = ", ".join(f"{count} {place}" for place, count in found.lost.items() if place and count)
    return f"of {total} relevant documents {kept} are in the first 10; lost at: {places or 'no stage'}"


def _speed(described: Mapping[str, Any]) -> str:
    """Of the corpus, unless it was there, and of the questions, with the start of what answers them."""
    seconds = described["ingest_seconds"]["total"]
    return f"the corpus was in step after {seconds:.1f} s; {described['questions_per_second']:.1f} questions/s"


def _comparison(found: "Comparison") -> str:
    return f"against the run: {_difference(found)}"


def _difference(found: "Comparison") -> str:
    difference = found.difference
    return (
        f"nDCG@10 {difference.mean:+.3f} ({difference.low:+.3f} to {difference.high:+.3f}), "
        f"p {found.p:.4f}; better on {found.better} questions, worse on {found.worse}, equal on {found.equal}"
    )


def main() -> None:
    app = typer.Typer(add_completion=False)
    app.command()(evaluate)
    app()


if __name__ == "__main__":
    main()
