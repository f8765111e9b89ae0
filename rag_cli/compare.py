"""`rag compare`."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rag_cli.terminal.consoles import stdout_console
from rag_cli.terminal.options import GlobalOptions, command, print_json
from rag_cli.terminal.tables import print_rows

if TYPE_CHECKING:
    from rag_core.evaluation.comparison import ComparedMeasure


@command
def compare(
    base: Annotated[Path, typer.Argument(metavar="A", help="The run to compare with: a folder of rag evaluate --out.")],
    candidate: Annotated[Path, typer.Argument(metavar="B", help="The run to compare.")],
    options: GlobalOptions,
    measure: Annotated[
        list[str] | None,
        typer.Option(
            help="Compare only this measure, such as ndcg@10; repeatable. By default the usual ones of rankings and "
            "all of answers.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Compare two runs of the same questions: what is better, what is worse, and how sure that is.

    Differences are those of B from A, with 95 % intervals. The p-values are of a paired randomisation test, adjusted
    with Holm's method for the number of rows. Runs of other questions, grades, k or judge are refused.

    Example: rag compare runs/monday runs/tuesday
    """
    from jobs.evaluation_runs import read_runs
    from rag_core.evaluation.comparison import common_measures, compare_runs, recommend
    from rag_core.evaluation.measured_run import check_coverage, pair_runs

    pairs = pair_runs(read_runs(base), read_runs(candidate))
    measures = measure or common_measures(pairs)
    check_coverage([run for pair in pairs for run in (pair.base, pair.candidate)], measures)
    rows = compare_runs(pairs, measures)
    advice = recommend(rows)
    conversations = {
        pair.candidate.name: {"A": pair.base.conversation, "B": pair.candidate.conversation}
        for pair in pairs
        if pair.base.conversation != pair.candidate.conversation
    }
    if options.json:
        values = {"measures": [asdict(row) for row in rows], "recommendation": advice, "conversations": conversations}
        print_json(values)
        return
    print_rows([_format_row(row) for row in rows], _format_row(rows[0]), options, "")
    for name, modes in conversations.items():
        searched = " and ".join(f"{run} {mode or 'unknown'}" for run, mode in modes.items())
        stdout_console().print(f"{name}: conversations were searched in different ways: {searched}", markup=False)
    stdout_console().print(f"\n{advice}", markup=False)


def _format_row(row: "ComparedMeasure") -> dict[str, str]:
    comparison, difference = row.comparison, row.comparison.difference
    return {
        "dataset": row.dataset,
        "measure": row.measure,
        "A": f"{row.base:.3f}",
        "B": f"{row.candidate:.3f}",
        "B - A": f"{difference.mean:+.4f} ({difference.low:+.4f} to {difference.high:+.4f})",
        "p": f"{row.adjusted_p:.4f}",
        "better": str(comparison.better),
        "worse": str(comparison.worse),
        "equal": str(comparison.equal),
        "detectable": f"{comparison.detectable:.4f}",
        "coverage": f"{row.coverage:.0%}",
    }
