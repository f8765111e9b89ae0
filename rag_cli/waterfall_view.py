"""The table of failed questions by the step that lost their answers."""

from typing import TYPE_CHECKING

from rich.table import Table

from rag_cli.terminal.consoles import stdout_console

if TYPE_CHECKING:
    from rag_core.evaluation.waterfall import Waterfall

BAR_WIDTH = 30


def print_waterfall(waterfall: "Waterfall") -> None:
    """Prints a bar for each label, and the share of its questions; nothing if no question failed."""
    if not waterfall.failed:
        return
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right")
    table.add_column(justify="right")
    table.add_column()
    most = max(waterfall.counts.values())
    for label, count in waterfall.counts.items():
        bar = "█" * max(1, round(BAR_WIDTH * count / most))
        table.add_row(label, str(count), f"{count / waterfall.questions:.1%}", bar)
    console = stdout_console()
    console.print(f"{len(waterfall.failed)} of {waterfall.questions} questions failed; their answers were lost at:")
    console.print(table)
