"""The worst questions at the end of `rag evaluate`."""

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from rag_cli.terminal.consoles import stdout_console

if TYPE_CHECKING:
    from rag_core.evaluation.finished_run import FinishedRun

MAX_QUESTION, MAX_ANSWER = 60, 50


def print_worst(run: "FinishedRun") -> None:
    """Prints each question with its label, the rank of its first relevant document, and what was answered."""
    from rag_core.evaluation.worst_questions import find_worst

    worst = find_worst(run)
    if not worst:
        return
    table = Table(title="worst questions", title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in ("question", "lost", "rank", "answer"):
        table.add_column(column, justify="right" if column == "rank" else "left")
    for question in worst:
        rank = str(question.final_rank or "none") if question.ranks else ""
        answer = _shorten(question.reply, MAX_ANSWER)
        table.add_row(_shorten(question.text, MAX_QUESTION), Text(question.label), rank, answer)
    stdout_console().print(table)


def _shorten(text: str, limit: int) -> Text:
    line = " ".join(text.split())
    return Text(line if len(line) <= limit else f"{line[: limit - 1]}…")
