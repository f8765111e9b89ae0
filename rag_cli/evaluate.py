"""`rag evaluate`."""

import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from jobs.evaluate import collection_name, ingest_dataset, judge_traces, trace_questions
from jobs.ingest import RunnerName
from rag_cli.ingest import RunnerOption
from rag_cli.terminal.consoles import stderr_console, stdout_console
from rag_cli.terminal.options import GlobalOptions, command, print_json
from rag_cli.terminal.progress import JobProgress, ProgressLines
from rag_core.errors import RagError, UsageError

if TYPE_CHECKING:
    from rag_core.config import Settings
    from rag_core.evaluation.comparison import Comparison
    from rag_core.evaluation.dataset import Dataset, Run
    from rag_core.evaluation.report import Evaluation
    from rag_core.evaluation.significance import Estimate
    from rag_core.evaluation.stages import Trace
    from rag_core.ingestion.report import SyncReport

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
    retriever: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Measure this retriever instead of the profile's: a YAML file with `retrieval`, or with `retriever` "
            "as for `rag config import`.",
            show_default=False,
        ),
    ] = None,
    runner: RunnerOption = RunnerName.auto,
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
    settings, retriever_notices = _apply_retriever(options.settings, retriever) if retriever else (options.settings, [])
    collection = collection or collection_name(selected, settings)
    postgres = Postgres.open(settings.store.url)
    with stderr_console(options.quiet) as console:
        with JobProgress(postgres, settings.tenant, console) as progress:
            report = ingest_dataset(selected, collection, postgres, settings, runner, progress.begin)
        task = TraceTask.build(settings, postgres, collection, k, callers)
        asked_at = time.perf_counter()
        traces = _collect_traces(trace_questions(task, selected.questions, runner), len(selected.questions), console)
        rate = len(traces) / (time.perf_counter() - asked_at)
    judged = judge_traces(selected, collection, traces, postgres, settings.tenant)
    evaluation = build_evaluation(judged, other_run)
    description = {
        "dataset": selected.name,
        "split": split,
        "collection": collection,
        "profile": settings.profile,
        "pipeline_version": settings.pipeline_version,
        "k": k,
        "callers": callers,
        "notices": [*retriever_notices, *_ingest_notices(report), *run_notices],
        "ingest_seconds": report.seconds,
        "questions_per_second": round(rate, 3),
        "seconds": round(time.perf_counter() - started, 3),
    }
    _print_evaluation(evaluation, description, options)
    if out:
        write_evaluation(out, evaluation, description)
    if evaluation.failed:
        raise typer.Exit(1)


def _apply_retriever(settings: "Settings", file: Path) -> "tuple[Settings, list[str]]":
    """The settings with the retriever of the file, and the notices about its translation."""
    from rag_core.config_import.retriever_files import read_retriever
    from rag_core.config_import.target import describe_target
    from rag_core.settings import read_document, replace_sections

    sections, notices = read_retriever(read_document(file), describe_target(settings))
    return replace_sections(settings, sections, str(file)), notices


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


def _collect_traces(traces: "Iterator[Trace]", count: int, console: Console) -> "list[Trace]":
    """All traces. Shows a bar on a terminal, or else lines of progress.

    Raises RagError if no question could be answered.
    """
    collected: list[Trace] = []
    columns = (TextColumn("searching"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    lines = ProgressLines(console)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        bar_task = bar.add_task("searching", total=count)
        for trace in traces:
            collected.append(trace)
            bar.advance(bar_task)
            lines.print(f"{len(collected)} of {count} questions")
    if all(trace.error for trace in collected):
        raise RagError(f"no question could be answered: {collected[0].error}")
    return collected


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
