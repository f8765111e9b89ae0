"""The tables of `rag evaluate --answers`, and of several datasets."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

from rag_cli.terminal.consoles import stdout_console

if TYPE_CHECKING:
    from rag_core.evaluation.answer_report import AnswerEvaluation

MAX_SHOWN_FAILURES = 5
SHOWN_RETRIEVAL_MEASURES = ("ndcg@10", "recall@10", "mrr")


def print_answers(evaluation: "AnswerEvaluation") -> None:
    """Prints the measures with their coverage, the kinds of replies, and the first failures."""
    from rag_core.evaluation.answer_report import MIN_COVERAGE

    console, table = stdout_console(), _build_table(f"answers to {len(evaluation.answers)} questions")
    for column in ("mean", "95 % interval", "coverage", "questions"):
        table.add_column(column, justify="right")
    for name, summary in evaluation.measures.items():
        estimate = summary.estimate
        values = (f"{estimate.mean:.3f}", f"{estimate.low:.3f}-{estimate.high:.3f}") if estimate else ("", "")
        table.add_row(name, *values, f"{summary.coverage:.1%}", str(summary.applicable))
    console.print(table)
    for side, kinds in evaluation.replies.items():
        console.print(f"{side}: {', '.join(f'{count} {kind}' for kind, count in kinds.items())}")
    if area := evaluation.abstention_auroc:
        interval = f"{area.mean:.3f} ({area.low:.3f}-{area.high:.3f})"
        console.print(f"AUROC of the confidence, answerable over unanswerable questions: {interval}")
    failures = [(answer.question.id, *failure) for answer in evaluation.answers for failure in answer.failures.items()]
    for question, name, reason in failures[:MAX_SHOWN_FAILURES]:
        console.print(f"not measured: {name} of question {question}  {reason}", markup=False, soft_wrap=True)
    if len(failures) > MAX_SHOWN_FAILURES:
        console.print(f"... and {len(failures) - MAX_SHOWN_FAILURES} more not measured")
    if not evaluation.is_valid:
        console.print(f"invalid: a measure covers less than {MIN_COVERAGE:.0%} of its questions")


def print_means(reports: Sequence[Mapping[str, Any]]) -> None:
    """Prints the means of each dataset, and in the last row those over all datasets."""
    answers = list(reports[-1].get("answers", {}).get("measures", {}))
    table = _build_table("means over the datasets")
    for name in (*SHOWN_RETRIEVAL_MEASURES, *answers):
        table.add_column(name, justify="right")
    for report in reports:
        measures = report["stages"]["final"]["measures"]
        values = [measures[name]["mean"] for name in SHOWN_RETRIEVAL_MEASURES]
        values += [report["answers"]["measures"][name]["mean"] for name in answers]
        table.add_row(f"{report['dataset']} {report['conversation'] or ''}", *(f"{value:.3f}" for value in values))
    stdout_console().print(table)


def _build_table(title: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    table.add_column("", no_wrap=True)
    return table
