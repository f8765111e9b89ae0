"""The evaluation of a profile's retriever on questions with graded documents.

It runs as `rag evaluate` or `python -m jobs.evaluate`.
"""

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from jobs.ingest import RunnerName, build_runner
from jobs.options import GlobalOptions, command, print_json, stdout_console
from jobs.progress import JobProgress, ProgressLines
from jobs.ray_runner import terminal_console
from rag_core.errors import DatasetError, RagError, UsageError

if TYPE_CHECKING:
    from jobs.retrieval_traces import TraceTask
    from rag_core.config import Settings
    from rag_core.evaluation.dataset import Dataset, Question, Run
    from rag_core.evaluation.report import Comparison, Evaluation
    from rag_core.evaluation.significance import Estimate
    from rag_core.evaluation.stages import JudgedQuestion, Trace
    from rag_core.ingestion.report import SyncReport
    from rag_core.storage.postgres import Postgres

MIN_QUESTIONS_TO_START_RAY = 2_000
"""The number of questions from which `auto` uses Ray. This process answers fewer before Ray would have started."""
MIN_QUESTIONS_FOR_A_CLUSTER = 200
"""The same limit if a cluster is already running, so that only the actors must start."""
SHOWN_MEASURES = {"nDCG@10": "ndcg@10", "R@10": "recall@10", "R@100": "recall@100", "MRR": "mrr", "MAP": "map"}
SHOWN_CHUNK_MEASURES = {
    "nDCG@10": "ndcg@10",
    "R@10": "recall@10",
    "Success@5": "success@5",
    "MRR": "mrr",
    "char R@10": "char_recall@10",
    "char IoU@5": "char_iou@5",
}
MAX_SHOWN_FAILURES = 5


@command
def evaluate(
    dataset: Annotated[Path, typer.Argument(help="A folder in BEIR's layout: corpus, queries.jsonl, qrels/.")],
    options: GlobalOptions,
    k: Annotated[int, typer.Option("-k", "--k", help="The number of hits per question.", min=10, max=1000)] = 100,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Use only this number of questions, from the first.", show_default=False)
    ] = None,
    split: Annotated[
        str, typer.Option(help="The split of the dataset: grades are read from qrels/SPLIT.tsv.")
    ] = "test",
    collection: Annotated[
        str | None,
        typer.Option(
            help="The collection for the corpus; by default one for this dataset and profile.", show_default=False
        ),
    ] = None,
    against: Annotated[
        Path | None, typer.Option(metavar="RUN", help="A TREC run to compare with.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write Parquet, TREC runs and JSON to this folder.", show_default=False),
    ] = None,
    runner: Annotated[
        RunnerName, typer.Option(help="Where to run the work; `auto` uses Ray for large jobs.")
    ] = RunnerName.auto,
    callers: Annotated[
        int, typer.Option(min=1, help="The number of questions that each process answers concurrently.")
    ] = 1,
) -> None:
    """Measure a profile's retriever on a dataset: each stage's ranking and time, and the relevant documents it lost.

    The corpus is ingested like any source, into a separate collection. Unchanged documents are not processed again.

    Example: rag evaluate data/scifact --profile default --out runs/scifact
    """
    from jobs.evaluation_files import make_folder, write_evaluation
    from jobs.retrieval_traces import TraceTask
    from rag_core.evaluation.dataset import read_dataset
    from rag_core.evaluation.report import build_evaluation
    from rag_core.storage.postgres import Postgres

    started = time.perf_counter()
    selected = read_dataset(dataset, split).limit_questions(limit)
    other_run, run_notices = _read_other_run(against, selected, split) if against else (None, [])
    if out:
        make_folder(out)
    settings = options.settings
    collection = collection or collection_name(selected, settings)
    postgres = Postgres.open(settings.store.url)
    with terminal_console(options.quiet) as console:
        report = ingest_dataset(selected, collection, postgres, runner, options, console)
        store_settings = settings.store.model_copy(update={"url": postgres.dsn})
        task_settings = settings.model_copy(update={"store": store_settings})
        task = TraceTask(settings=task_settings, collection=collection, k=k, callers=callers)
        traces, rate = _trace_questions(task, selected.questions, runner, console)
    judged = _judge_traces(selected, collection, traces, postgres, settings.tenant)
    evaluation = build_evaluation(judged, other_run)
    description = {
        "dataset": selected.name,
        "split": split,
        "collection": collection,
        "profile": settings.profile,
        "pipeline_version": settings.pipeline_version,
        "k": k,
        "callers": callers,
        "notices": [*_ingest_notices(report), *run_notices],
        "ingest_seconds": report.seconds,
        "questions_per_second": round(rate, 3),
        "seconds": round(time.perf_counter() - started, 3),
    }
    _print_evaluation(evaluation, description, options)
    if out:
        write_evaluation(out, evaluation, description)
    if evaluation.failed:
        raise typer.Exit(1)


def collection_name(dataset: "Dataset", settings: "Settings") -> str:
    return f"evaluation-{dataset.name}-{settings.profile}"


def ingest_dataset(
    dataset: "Dataset",
    collection: str,
    postgres: "Postgres",
    runner: RunnerName,
    options: GlobalOptions,
    console: Console,
) -> "SyncReport":
    """Syncs the collection with the corpus of the dataset.

    Raises DatasetError if the collection has other sources: their documents have no grades, so hits on them would
    count as wrong.
    """
    from rag_core.evaluation.dataset import folder_name, read_corpus, write_documents
    from rag_core.ingestion.sync import SyncOptions
    from rag_core.storage.catalog import Catalog
    from rag_core.storage.embedded import rag_home
    from rag_core.wiring.ingestion import build_sync

    folder = dataset.corpus
    if not folder.is_dir():
        folder = rag_home() / "evaluation" / folder_name(collection)
        write_documents(read_corpus(dataset.corpus), folder)
    settings = options.settings
    job = build_sync(settings, postgres, [str(folder)], collection, SyncOptions(confirmed=True))
    with postgres.connect() as connection:
        uris = [source.uri for source in Catalog(connection, settings.tenant).sources(collection)]
    if others := [uri for uri in uris if uri != job.sources[0].uri]:
        raise DatasetError(
            f"collection {collection!r} has the source {others[0]} besides the dataset; drop the source, or choose "
            "another collection with --collection"
        )
    with JobProgress(postgres, settings.tenant, console) as progress:
        return job.run(build_runner(runner, settings), progress.begin)


def _read_other_run(path: Path, dataset: "Dataset", split: str) -> "tuple[Run, list[str]]":
    """The run of `--against`, and a notice if it lacks some of the questions. Raises UsageError if it lacks all."""
    from rag_core.evaluation.dataset import read_run
    from rag_core.evaluation.report import count_answered

    run = read_run(path)
    count, total = count_answered(dataset.questions, run), len(dataset.questions)
    if not count:
        raise UsageError(
            f"--against must answer questions of {dataset.name}, split {split}, got none of {total} in {path}"
        )
    return run, [] if count == total else [f"{path} answers {count} of {total} questions; the others count as 0"]


def _trace_questions(
    task: "TraceTask", questions: "Sequence[Question]", runner: RunnerName, console: Console
) -> "tuple[list[Trace], float]":
    """The traces, and the number of questions per second. Shows a bar on a terminal, or else lines of progress.

    Raises RagError if no question could be answered.
    """
    from jobs.retrieval_traces import trace_inline, trace_on_ray

    started, traces = time.perf_counter(), list["Trace"]()
    min_questions = MIN_QUESTIONS_FOR_A_CLUSTER if "RAY_ADDRESS" in os.environ else MIN_QUESTIONS_TO_START_RAY
    inline = len(questions) < min_questions if runner is RunnerName.auto else runner is RunnerName.inline
    columns = (TextColumn("searching"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    lines = ProgressLines(console)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        bar_task = bar.add_task("searching", total=len(questions))
        for trace in (trace_inline if inline else trace_on_ray)(task, questions):
            traces.append(trace)
            bar.advance(bar_task)
            lines.print(f"{len(traces)} of {len(questions)} questions")
    if all(trace.error for trace in traces):
        raise RagError(f"no question could be answered: {traces[0].error}")
    return traces, len(traces) / (time.perf_counter() - started)


def _judge_traces(
    dataset: "Dataset", collection: str, traces: "Sequence[Trace]", postgres: "Postgres", tenant: str
) -> "list[JudgedQuestion]":
    """Judges every question, in the order of the dataset."""
    from jobs.stored_dataset import locate_answers, read_stored_dataset
    from rag_core.evaluation.stages import judge_question, with_chunk_measures

    rankings = [ranking for trace in traces for ranking in (trace.ranking, *(stage.ranking for stage in trace.stages))]
    stored = read_stored_dataset({id for ranking in rankings for id in ranking}, dataset, collection, postgres, tenant)
    documents = {id: span.document for id, span in stored.chunks.items()}
    searchable = frozenset(stored.documents)
    trace_by_question = {trace.question: trace for trace in traces}
    judged_questions = [
        judge_question(question, trace_by_question[question.id], documents, searchable)
        for question in dataset.questions
    ]
    answers = locate_answers(stored, dataset, postgres, tenant)
    return [
        with_chunk_measures(judged, answers[judged.question.id], stored.chunks)
        if judged.question.id in answers
        else judged
        for judged in judged_questions
    ]


def _ingest_notices(report: "SyncReport") -> list[str]:
    """The notices of the ingest, and one about documents that cannot be found."""
    missing = {name: report.documents[name] for name in ("failed", "skipped", "quarantined") if report.documents[name]}
    counts = ", ".join(f"{count} {name}" for name, count in missing.items())
    return [*([f"some documents are not searched: {counts}"] if counts else []), *report.notices]


def _print_evaluation(evaluation: "Evaluation", description: Mapping[str, Any], options: GlobalOptions) -> None:
    from rag_core.evaluation.report import to_json

    if options.json:
        print_json({**description, **to_json(evaluation)})
        return
    console = stdout_console()
    console.print(_stage_table(evaluation, description))
    if evaluation.headroom is not None:
        console.print(f"headroom: the best order of all legs' chunks would add {evaluation.headroom:.3f} nDCG@10")
    for gain in evaluation.improvements:
        console.print(f"{gain.stage} over {gain.over}: {_format_comparison(gain.comparison)}", markup=False)
    seconds, rate = description["ingest_seconds"]["total"], description["questions_per_second"]
    console.print(f"the corpus was up to date after {seconds:.1f} s; {rate:.1f} questions/s")
    total, top = sum(evaluation.losses.values()), evaluation.losses[""]
    losses = ", ".join(f"{count} {place}" for place, count in evaluation.losses.items() if place and count)
    console.print(f"of {total} relevant documents, {top} are in the first 10; lost at: {losses or 'no stage'}")
    if evaluation.questions_with_spans:
        console.print(_chunk_table(evaluation))
    if evaluation.comparison:
        console.print(f"compared with the run: {_format_comparison(evaluation.comparison)}")
    for judged in evaluation.failed[:MAX_SHOWN_FAILURES]:
        console.print(f"failed: question {judged.question.id}  {judged.trace.error}", markup=False, soft_wrap=True)
    if len(evaluation.failed) > MAX_SHOWN_FAILURES:
        console.print(f"... and {len(evaluation.failed) - MAX_SHOWN_FAILURES} more failed")
    for notice in description["notices"]:
        console.print(f"note: {notice}", markup=False)


def _stage_table(evaluation: "Evaluation", description: Mapping[str, Any]) -> Table:
    count, k = len(evaluation.questions), description["k"]
    title = f"{description['dataset']} with {description['profile']}: {count} questions, {k} chunks"
    table = _measure_table(title, (*SHOWN_MEASURES, "p50 ms", "p95 ms", "errors"))
    for stage in evaluation.stages:
        names, latency = SHOWN_MEASURES.values(), stage.latency
        measures = [_format_interval(stage.measures[name]) if stage.measures else "" for name in names]
        times = [f"{seconds * 1000:.1f}" for seconds in (latency.p50, latency.p95)] if latency else ["", ""]
        table.add_row(stage.stage, *measures, *times, str(stage.errors or ""))
    return table


def _chunk_table(evaluation: "Evaluation") -> Table:
    missing = len(evaluation.answers_in_no_chunk)
    suffix = f"; answers in no chunk: {missing}" if missing else ""
    title = f"chunks by the answer spans of {len(evaluation.questions_with_spans)} questions{suffix}"
    table = _measure_table(title, SHOWN_CHUNK_MEASURES)
    for stage in evaluation.stages:
        if stage.chunk_measures:
            values = (stage.chunk_measures[name] for name in SHOWN_CHUNK_MEASURES.values())
            table.add_row(stage.stage, *map(_format_interval, values))
    return table


def _measure_table(title: str, columns: Iterable[str]) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    table.add_column("stage", no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right")
    return table


def _format_interval(estimate: "Estimate") -> str:
    """The mean and its 95 % confidence interval."""
    return f"{_format_decimal(estimate.mean, 3)} {_format_decimal(estimate.low, 2)}-{_format_decimal(estimate.high, 2)}"


def _format_decimal(value: float, digits: int) -> str:
    return f"{value:.{digits}f}".removeprefix("0")


def _format_comparison(comparison: "Comparison") -> str:
    difference = comparison.difference
    return (
        f"nDCG@10 {difference.mean:+.3f} ({difference.low:+.3f} to {difference.high:+.3f}), "
        f"p {comparison.p:.4f}; better on {comparison.better} questions, worse on {comparison.worse}, "
        f"equal on {comparison.equal}"
    )


def main() -> None:
    app = typer.Typer(add_completion=False)
    app.command()(evaluate)
    app()


if __name__ == "__main__":
    main()
