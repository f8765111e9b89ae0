"""`rag evaluate`."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from jobs.ingest import RunnerName
from rag_cli.answer_evaluation_view import print_answers, print_means
from rag_cli.claim_evaluation import INVALID_EXIT_CODE, evaluate_claims
from rag_cli.conversation_view import build_group_table, print_comparisons
from rag_cli.dataset_evaluation import Choices, DatasetResults, ModelEndpoint, evaluate_dataset
from rag_cli.ingest import RunnerOption
from rag_cli.script_evaluation import evaluate_scripts
from rag_cli.terminal.consoles import stdout_console
from rag_cli.terminal.options import GlobalOptions, command, print_json
from rag_cli.waterfall_view import print_waterfall
from rag_cli.worst_questions_view import print_worst
from rag_core.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from rag_core.evaluation.comparison import Comparison
    from rag_core.evaluation.conversation_mode import ConversationMode
    from rag_core.evaluation.report import Evaluation
    from rag_core.evaluation.significance import Estimate

SHOWN_MEASURES = {"nDCG@10": "ndcg@10", "R@10": "recall@10", "R@100": "recall@100", "MRR": "mrr", "MAP": "map"}
HIT_MEASURES = {"P@10": "precision@10", "F1@10": "f1@10"}
SHOWN_CHUNK_MEASURES = {
    "nDCG@10": "ndcg@10",
    "R@10": "recall@10",
    "Success@5": "success@5",
    "MRR": "mrr",
    "char R@10": "char_recall@10",
    "1024 tokens": "char_recall@1024t",
    "char IoU@5": "char_iou@5",
}
MAX_SHOWN_FAILURES = 5


@command
def evaluate(
    datasets: Annotated[
        list[Path],
        typer.Argument(metavar="DATASET...", help="Folders in BEIR's layout: corpus, queries.jsonl, qrels/."),
    ],
    options: GlobalOptions,
    answers: Annotated[
        bool, typer.Option("--answers", help="Also answer the questions, and measure the answers.")
    ] = False,
    own_documents: Annotated[
        bool,
        typer.Option("--own-documents", help="Answer each question only from the documents that are graded for it."),
    ] = False,
    ragas: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Also measure the answers with ragas, through this OpenAI-compatible endpoint, such as "
            "http://127.0.0.1:8000/v1. Its key is read from OPENAI_API_KEY.",
            show_default=False,
        ),
    ] = None,
    ragas_model: Annotated[
        str, typer.Option(metavar="NAME", help="The model of the endpoint of --ragas.", show_default=False)
    ] = "",
    judge: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Also let a language model grade the answers by a rubric, through this OpenAI-compatible endpoint. "
            "Its key is read from OPENAI_API_KEY.",
            show_default=False,
        ),
    ] = None,
    judge_model: Annotated[
        str, typer.Option(metavar="NAME", help="The model of the endpoint of --judge.", show_default=False)
    ] = "",
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
    pad: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FOLDER",
            help="Also search the documents of this dataset, so that the relevant ones are harder to find; repeatable.",
            show_default=False,
        ),
    ] = None,
    conversation: Annotated[
        str,
        typer.Option(
            metavar="MODES",
            help="The ways to search questions that have a history, separated by commas: `raw`, the question alone; "
            "`rewritten`, in words that need no history; `fused`, as users are served; `gold`, with the dataset's own "
            "rewrites. Several are compared with each other.",
        ),
    ] = "fused",
    against: Annotated[
        Path | None, typer.Option(metavar="RUN", help="A TREC run to compare with.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write a report and all values to this folder.", show_default=False),
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
    """Measure a profile's retriever on datasets: each stage's ranking and time, and the relevant documents it lost.

    The corpus is ingested like any source, into a separate collection. Unchanged documents are not processed again.
    With --answers the whole pipeline answers the questions. A run that was killed continues in the same --out folder.
    A folder with judge.jsonl has claims that people labelled; it measures the profile's judge. One with
    scripted_conversations.jsonl has conversations; they are asked turn by turn, and each question also without history.

    Example: rag evaluate data/scifact --profile default --out runs/scifact
    """
    from rag_core.evaluation.claims import has_claims
    from rag_core.evaluation.scripted_conversations import has_scripts

    names = _read_names(datasets, is_alone=bool(collection or against))
    if any(map(has_claims, datasets)):
        if answers or own_documents or ragas or judge or collection or against or retriever or pad:
            raise UsageError("claims measure only the judge: options about retrieval and answers do not apply")
        evaluate_claims(datasets, limit, callers, options, out)
        return
    modes = _read_modes(conversation)
    ragas_endpoint = _read_endpoint("--ragas", ragas, ragas_model)
    judge_endpoint = _read_endpoint("--judge", judge, judge_model)
    if ragas_endpoint:
        _check_ragas()
    choices = Choices(
        k=k,
        limit=limit,
        split=split,
        collection=collection,
        against=against,
        retriever=retriever,
        runner=runner,
        callers=callers,
        padding=pad or [],
        modes=modes,
        answers=answers or own_documents or bool(ragas_endpoint or judge_endpoint),
        own_documents=own_documents,
        ragas=ragas_endpoint,
        judge=judge_endpoint,
    )
    if any(map(has_scripts, datasets)):
        evaluate_scripts(datasets, choices, options, out)
        return
    results = _evaluate_all(datasets, names, choices, options, out)
    _print_all(results, len(modes), options)
    if any(result.answers and not result.answers.is_valid for result in results):
        raise typer.Exit(INVALID_EXIT_CODE)
    if any(result.evaluation.failed for result in results):
        raise typer.Exit(1)


def _evaluate_all(
    datasets: Sequence[Path], names: Sequence[str], choices: Choices, options: GlobalOptions, out: Path | None
) -> list[DatasetResults]:
    """Evaluates the datasets, and prints the tables of each when it is finished."""
    results: list[DatasetResults] = []
    for folder, name in zip(datasets, names, strict=True):
        outs = _choose_folders(out, choices.modes, name if len(names) > 1 else "")
        measured = evaluate_dataset(folder, choices, options, outs)
        if not options.json:
            for result in measured:
                _print_results(result)
        results += measured
    return results


def _read_names(datasets: Sequence[Path], is_alone: bool) -> list[str]:
    """The names of the datasets. Raises UsageError if two are the same, or if one that must be alone is not."""
    if len(datasets) > 1 and is_alone:
        raise UsageError(f"--collection and --against require one dataset, got {len(datasets)}")
    names = [folder.resolve().name for folder in datasets]
    if len(set(names)) < len(names):
        raise UsageError(f"datasets must have different names, got {', '.join(names)}")
    return names


def _read_modes(text: str) -> "list[ConversationMode]":
    from rag_core.evaluation.conversation_mode import ConversationMode

    names = [name.strip() for name in text.split(",")]
    if unknown := sorted(set(names) - {*ConversationMode}):
        raise UsageError(f"--conversation must be any of {', '.join(ConversationMode)}, got {', '.join(unknown)!r}")
    return [ConversationMode(name) for name in dict.fromkeys(names)]


def _choose_folders(
    out: Path | None, modes: "Sequence[ConversationMode]", name: str
) -> "dict[ConversationMode, Path | None]":
    """The folder of each mode, without a subfolder for a single mode, and for an empty name."""
    return {mode: out and out.joinpath(*([mode] if len(modes) > 1 else []), name) for mode in modes}


def _read_endpoint(option: str, url: str | None, model: str) -> ModelEndpoint | None:
    """None without a URL. An unusable URL is an error before anything is measured."""
    from rag_core.models.endpoint import parse_endpoint_url

    if url and not model:
        raise UsageError(f"{option} requires {option}-model, the name of the endpoint's model")
    if model and not url:
        raise UsageError(f"{option}-model requires {option}, the URL of the endpoint")
    if not url:
        return None
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"{option} must begin with http:// or https://, got {url}")
    try:
        parse_endpoint_url(url)
    except ConfigError as error:
        raise UsageError(f"{option}: {error}") from error
    return ModelEndpoint(url, model)


def _check_ragas() -> None:
    from jobs.ragas_scores import check_ragas

    check_ragas()


def _print_all(results: "Sequence[DatasetResults]", modes: int, options: GlobalOptions) -> None:
    """Prints JSON, and for several datasets the means over them; the tables of each have been printed.

    The results of each dataset are one for each of the `modes`.
    """
    from rag_core.evaluation.mean_report import average_reports

    reports = [result.report for result in results]
    if len(reports) > modes:
        reports += [average_reports(reports[mode::modes]) for mode in range(modes)]
    if options.json:
        print_json(reports[0] if len(reports) == 1 else reports)
    elif len(reports) > modes:
        print_means(reports)


def _print_results(results: DatasetResults) -> None:
    _print_evaluation(results.evaluation, results.description)
    if results.answers:
        print_answers(results.answers)
    print_comparisons(results.comparisons, results.description["conversation"])
    print_waterfall(results.waterfall)
    print_worst(results.run)


def _print_evaluation(evaluation: "Evaluation", description: Mapping[str, Any]) -> None:
    console = stdout_console()
    console.print(_stage_table(evaluation, description))
    if evaluation.headroom is not None:
        console.print(f"headroom: the best order of all legs' chunks would add {evaluation.headroom:.3f} nDCG@10")
    for gain in evaluation.improvements:
        console.print(f"{gain.stage} over {gain.over}: {_format_comparison(gain.comparison)}", markup=False)
    console.print(_format_hits(evaluation, description))
    seconds = description["ingest_seconds"]
    console.print(
        f"the corpus was up to date after {seconds['total']:.1f} s, with {seconds['index']:.1f} s for indexes"
    )
    total, top = sum(evaluation.losses.values()), evaluation.losses[""]
    losses = ", ".join(f"{count} {place}" for place, count in evaluation.losses.items() if place and count)
    console.print(f"of {total} relevant documents, {top} are in the first 10; lost at: {losses or 'no stage'}")
    if evaluation.questions_with_spans:
        console.print(_chunk_table(evaluation))
    if evaluation.groups:
        console.print(build_group_table(evaluation.groups))
    if evaluation.comparison:
        console.print(f"compared with the run: {_format_comparison(evaluation.comparison)}")
    for judged in evaluation.failed[:MAX_SHOWN_FAILURES]:
        console.print(f"failed: question {judged.question.id}  {judged.trace.error}", markup=False, soft_wrap=True)
    if len(evaluation.failed) > MAX_SHOWN_FAILURES:
        console.print(f"... and {len(evaluation.failed) - MAX_SHOWN_FAILURES} more failed")
    for notice in description["notices"]:
        console.print(f"note: {notice}", markup=False)


def _format_hits(evaluation: "Evaluation", description: Mapping[str, Any]) -> str:
    """The figures of the hits that the table has no room for."""
    hits = evaluation.stages[-1]
    shown = [f"{title} {_format_decimal(hits.measures[name].mean, 3)}" for title, name in HIT_MEASURES.items()]
    if latency := hits.latency:
        times = {"mean": latency.mean, "p99": latency.p99}
        shown += [f"{name} {1000 * seconds:.1f} ms" for name, seconds in times.items()]
    return f"hits: {', '.join(shown)}; {description['questions_per_second']:.1f} questions/s"


def _stage_table(evaluation: "Evaluation", description: Mapping[str, Any]) -> Table:
    count, k = len(evaluation.questions), description["k"]
    padding = f", padded with {', '.join(description['padding'])}" if description["padding"] else ""
    conversation = f", {description['conversation']}" if description["conversation"] else ""
    title = (
        f"{description['dataset']} with {description['profile']}{conversation}: {count} questions, {k} chunks{padding}"
    )
    table = _measure_table(title, (*SHOWN_MEASURES, "p50 ms", "p95 ms", "errors"))
    for stage in (stage for stage in evaluation.stages if not _is_within_variant(stage.stage)):
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


def _is_within_variant(stage: str) -> bool:
    return stage.startswith("variant ") and ": " in stage


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
