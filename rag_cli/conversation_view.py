"""The tables of `rag evaluate` about conversations."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from rag_cli.terminal.consoles import stdout_console

if TYPE_CHECKING:
    from rag_core.evaluation.conversation_groups import GroupComparison, QuestionGroup

SHOWN_MEASURES = {"nDCG@10": "ndcg@10", "R@10": "recall@10", "R@100": "recall@100", "MRR": "mrr"}


def build_group_table(groups: "Mapping[str, QuestionGroup]") -> Table:
    """The measures of the hits by turn, and of follow-ups."""
    table = _build_table("hits by place in the conversation", ("questions", *SHOWN_MEASURES))
    for name, group in groups.items():
        means = [f"{group.measures[measure].mean:.3f}" for measure in SHOWN_MEASURES.values()]
        table.add_row(name, str(group.questions), *means)
    return table


def print_comparisons(rows: "Sequence[GroupComparison]", mode: str) -> None:
    """Prints one table per way of searching that `mode` is compared with."""
    console = stdout_console()
    for over in dict.fromkeys(row.over for row in rows):
        columns = ("questions", over, mode, "difference", "p", "better", "worse", "equal")
        table = _build_table(f"nDCG@10 of {mode} over {over}", columns)
        for row in (row for row in rows if row.over == over):
            comparison, difference = row.comparison, row.comparison.difference
            table.add_row(
                row.group,
                str(row.questions),
                f"{row.base:.3f}",
                f"{row.candidate:.3f}",
                f"{difference.mean:+.4f} ({difference.low:+.4f} to {difference.high:+.4f})",
                f"{row.adjusted_p:.4f}",
                *map(str, (comparison.better, comparison.worse, comparison.equal)),
            )
        console.print(table)


def _build_table(title: str, columns: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    table.add_column("", no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right")
    return table
