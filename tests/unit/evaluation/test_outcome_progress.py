"""The progress of questions without a terminal: lines with what is left, and with calls and tokens if there are any."""

from dataclasses import dataclass
from io import StringIO

import pytest
from rich.console import Console

from rag_cli import outcome_progress
from rag_cli.outcome_progress import collect_outcomes, count_work
from rag_cli.terminal import progress


@dataclass(frozen=True)
class Spent:
    calls: int = 2
    prompt_tokens: int = 1000
    completion_tokens: int = 250


@pytest.fixture
def console(monkeypatch: pytest.MonkeyPatch) -> Console:
    """A console that is not a terminal, on a machine where every question takes 20 seconds."""
    times = iter(range(0, 10_000, 20))
    monkeypatch.setattr(outcome_progress, "monotonic", lambda: next(times))
    monkeypatch.setattr(progress, "LINE_SECONDS", -1.0)
    return Console(file=StringIO(), width=200)


def read_lines(console: Console) -> list[str]:
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().splitlines()


def test_lines_have_the_time_left_and_the_calls_and_tokens_so_far(console: Console) -> None:
    assert collect_outcomes([Spent(), Spent()], 2, console, "answering", count_work) == [Spent(), Spent()]
    assert read_lines(console) == [
        "answering: 1 of 2 questions, 20 s left, 2 calls, 1,250 tokens",
        "answering: 2 of 2 questions, 0 s left, 4 calls, 2,500 tokens",
    ]


def test_a_search_reports_no_calls(console: Console) -> None:
    collect_outcomes(["hits"], 3, console, "searching")
    assert read_lines(console) == ["searching: 1 of 3 questions, 40 s left"]
