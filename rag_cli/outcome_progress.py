"""The live progress of questions: how many are done, the time that is left, and calls and tokens of models so far."""

from collections.abc import Callable, Iterable
from time import monotonic
from typing import Protocol, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from rag_cli.terminal.progress import ProgressLines


class Metered(Protocol):
    """The outcome of work that can call a language model."""

    @property
    def calls(self) -> int: ...

    @property
    def prompt_tokens(self) -> int: ...

    @property
    def completion_tokens(self) -> int: ...


Outcome = TypeVar("Outcome")


def count_work(outcome: Metered) -> tuple[int, int]:
    """The calls of a language model, and their tokens."""
    return outcome.calls, outcome.prompt_tokens + outcome.completion_tokens


def count_no_work(_outcome: object) -> tuple[int, int]:
    return 0, 0


def collect_outcomes(
    outcomes: Iterable[Outcome],
    count: int,
    console: Console,
    verb: str,
    count_work: Callable[[Outcome], tuple[int, int]] = count_no_work,
) -> list[Outcome]:
    """All outcomes. Shows a bar on a terminal, or else lines of progress."""
    collected: list[Outcome] = []
    columns = (TextColumn(verb), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    lines, started, calls, tokens = ProgressLines(console), monotonic(), 0, 0
    work_column = TextColumn("{task.fields[work]}")
    with Progress(*columns, work_column, console=console, transient=True, disable=not console.is_terminal) as bar:
        bar_task = bar.add_task(verb, total=count, work="")
        for outcome in outcomes:
            collected.append(outcome)
            more_calls, more_tokens = count_work(outcome)
            calls, tokens = calls + more_calls, tokens + more_tokens
            work = f"{calls:,} calls, {tokens:,} tokens" if calls else ""
            bar.update(bar_task, advance=1, work=work)
            seconds_left = (monotonic() - started) / len(collected) * (count - len(collected))
            line = f"{verb}: {len(collected)} of {count} questions, {seconds_left:.0f} s left"
            lines.print(f"{line}, {work}" if work else line)
    return collected
