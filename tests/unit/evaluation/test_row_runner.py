"""The work for many rows in this process: the order of outcomes and errors."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event

import pytest

from jobs.ingest import RunnerName
from jobs.row_runner import run_rows


@dataclass
class Task:
    """The work of a row is to wait for its event, if it has one. A row in `errors` raises."""

    callers: int
    events: dict[int, Event] = field(default_factory=dict)
    errors: tuple[int, ...] = ()

    @contextmanager
    def open(self) -> Iterator[Callable[[int], int]]:
        yield self.run

    def run(self, row: int) -> int:
        if row in self.events:
            self.events[row].wait(60)
        if row in self.errors:
            raise ValueError(row)
        return row


def test_a_slow_row_holds_back_no_other() -> None:
    event = Event()
    outcomes = run_rows(Task(callers=2, events={0: event}), [0, 1, 2], RunnerName.inline)
    assert [next(outcomes), next(outcomes)] == [1, 2]
    event.set()
    assert list(outcomes) == [0]


def test_rows_that_were_finished_before_an_error_come_before_it() -> None:
    outcomes = run_rows(Task(callers=1, errors=(2,)), range(9), RunnerName.inline)
    assert [next(outcomes), next(outcomes)] == [0, 1]
    with pytest.raises(ValueError, match="2"):
        next(outcomes)
