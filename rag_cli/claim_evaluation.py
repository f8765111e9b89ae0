"""The evaluation of a profile's judge on claims that people labelled."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Table

from rag_cli.terminal.consoles import stderr_console, stdout_console
from rag_cli.terminal.options import GlobalOptions, print_json
from rag_cli.terminal.progress import ProgressLines
from rag_core.errors import UsageError

if TYPE_CHECKING:
    from rag_core.config import Settings
    from rag_core.evaluation.claims import LabelledClaim
    from rag_core.evaluation.judge_figures import JudgeFigures
    from rag_core.protocols import Judge

INVALID_EXIT_CODE = 5


def evaluate_claims(
    folders: Sequence[Path], limit: int | None, callers: int, options: GlobalOptions, out: Path | None
) -> None:
    """Judges the claims, prints the figures, and writes them to `out`, in a subfolder for each of several datasets."""
    from jobs.claim_files import write_claim_evaluation
    from jobs.evaluation_files import check_folder
    from rag_core.evaluation.claims import has_claims, read_claims
    from rag_core.evaluation.judge_figures import figures_to_json
    from rag_core.evaluation.mean_report import average_claim_reports
    from rag_core.wiring.judging import build_configured_judge
    from rag_core.wiring.models import RemoteModels

    if not all(map(has_claims, folders)):
        raise UsageError("datasets of claims and datasets of questions must be evaluated in separate calls")
    claims = {folder: read_claims(folder, limit) for folder in folders}
    targets = {folder: out / folder.resolve().name if len(folders) > 1 else out for folder in folders if out}
    for target in targets.values():
        check_folder(target)
    judge = build_configured_judge(options.settings, RemoteModels())
    reports = []
    for folder in folders:
        figures = _judge_claims(judge, claims[folder], callers, options)
        reports.append({**_describe(folder, options.settings), **figures_to_json(figures)})
        if folder in targets:
            write_claim_evaluation(targets[folder], figures.judged, reports[-1])
    means = [average_claim_reports(reports)] if len(reports) > 1 else []
    if options.json:
        print_json([*reports, *means] if means else reports[0])
    else:
        _print_table(reports, means)
    if not all(report["valid"] for report in reports):
        raise typer.Exit(INVALID_EXIT_CODE)


def _judge_claims(
    judge: "Judge", claims: "Sequence[LabelledClaim]", callers: int, options: GlobalOptions
) -> "JudgeFigures":
    from rag_core.evaluation.judge_figures import judge_claims, measure_judge

    judged = []
    with stderr_console(options.quiet) as console:
        lines = ProgressLines(console)
        for claim in judge_claims(judge, claims, callers):
            judged.append(claim)
            lines.print(f"judging: {len(judged)} of {len(claims)} claims")
    return measure_judge(judged)


def _describe(folder: Path, settings: "Settings") -> dict[str, Any]:
    from jobs.machine import describe_machine
    from jobs.provenance import describe_program
    from jobs.question_answers import describe_configured_judge
    from rag_core.evaluation.claims import hash_claims

    return {
        "dataset": folder.resolve().name,
        "profile": settings.profile,
        "pipeline_version": settings.pipeline_version,
        "dataset_hash": hash_claims(folder),
        "judge": describe_configured_judge(settings),
        "machine": describe_machine(),
        **describe_program(),
    }


def _print_table(reports: Sequence[Mapping[str, Any]], means: Sequence[Mapping[str, Any]]) -> None:
    """Prints a row per dataset and one for the means, the grades by people's judgement, and the first failure."""
    console = stdout_console()
    table = Table(title=f"the judge {reports[0]['judge']['type']}, on claims that people labelled")
    table.title_justify, table.box, table.pad_edge, table.header_style = "left", None, False, "bold"
    for column in ("", "claims", *reports[0]["measures"], "coverage", "ms"):
        table.add_column(column.replace("_", " "), justify="right" if column else "left")
    for report in reports:
        values = [
            f"{value['mean']:.3f} {value['low']:.2f}-{value['high']:.2f}" for value in report["measures"].values()
        ]
        row = [report["dataset"], str(report["claims"]), *values]
        table.add_row(*row, f"{report['coverage']:.1%}", f"{report['milliseconds']:.1f}")
    for mean in means:
        values = [f"{value['mean']:.3f}" for value in mean["measures"].values()]
        table.add_row(mean["dataset"], str(mean["claims"]), *values)
    console.print(table)
    for report in reports:
        for judgement, counts in report["grades"].items():
            grades = ", ".join(f"{count} {grade}" for grade, count in counts.items() if count)
            console.print(f"{report['dataset']}: {judgement} for people: {grades}")
        for failure in report["failures"][:1]:
            console.print(
                f"not judged: {len(report['failures'])} claims, such as {failure['claim']}: {failure['reason']}"
            )
