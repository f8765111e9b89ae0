"""`rag ingest --every`: when its runs begin, and when they end."""

import os
import signal
import sys
from collections.abc import Sequence
from threading import Event

import pytest
from commands import rag_in_process

from rag_cli.schedule import Ending, Schedule
from rag_cli.termination import notify_on_sigterm, stop_on_sigterm
from rag_core.errors import BusyError, SourceError, StoppedError, StoreError

FAILED = Ending(3, StoreError("away"))


class SetClock:
    """A clock that runs and waits move on. The schedule ends with the wait after the last of the `runs`."""

    def __init__(self, *runs: tuple[float, Ending]) -> None:
        """Each run has its seconds and its ending."""
        self._runs = list(runs)
        self.now = 0.0
        self.starts: list[float] = []

    def clock(self) -> float:
        return self.now

    def run(self) -> Ending:
        self.starts.append(self.now)
        seconds, ending = self._runs.pop(0)
        self.now += seconds
        return ending

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        return not self._runs


def repeat(*runs: tuple[float, Ending], period: float = 60.0) -> tuple[int, Sequence[float]]:
    """The exit code, and the times at which the runs began."""
    clock = SetClock(*runs)
    return Schedule(period=period, wait=clock.wait, clock=clock.clock).repeat(clock.run), clock.starts


def test_the_period_counts_from_the_start_of_a_run_and_runs_do_not_overlap() -> None:
    ending = Ending()
    code, starts = repeat((5, ending), (0.5, ending), (150, ending), (1, ending), (1, ending))
    assert (code, starts) == (0, [0, 60, 120, 270, 330])


def test_a_failed_run_does_not_end_the_schedule_and_the_last_one_decides_the_exit_code() -> None:
    assert repeat((1, FAILED), (1, Ending(1)), (1, Ending())) == (0, [0, 60, 120])
    assert repeat((1, Ending()), (1, FAILED)) == (3, [0, 60])


def test_a_busy_source_is_not_a_failure() -> None:
    busy = Ending(3, BusyError("another job"))
    assert repeat((1, busy), (1, Ending()), (1, busy)) == (0, [0, 60, 120])
    assert repeat((1, Ending(1)), (1, busy)) == (1, [0, 60])


def test_a_usage_error_ends_the_schedule_only_at_its_first_run() -> None:
    missing = Ending(2, SourceError("there is no such folder"))
    assert repeat((1, missing), (1, Ending())) == (2, [0])
    assert repeat((1, Ending()), (1, missing), (1, Ending())) == (0, [0, 60, 120])


@pytest.mark.parametrize(("code", "error"), [(130, KeyboardInterrupt()), (1, StoppedError("stopped by SIGTERM"))])
def test_an_interrupted_run_is_the_last_and_does_not_decide_the_exit_code(code: int, error: BaseException) -> None:
    interrupted = Ending(code, error)
    assert repeat((1, Ending()), (1, interrupted), (1, Ending(1))) == (0, [0, 60])
    assert repeat((1, FAILED), (1, interrupted)) == (3, [0, 60])


def test_an_interrupt_between_two_runs_ends_the_schedule() -> None:
    def interrupt(_seconds: float) -> bool:
        raise KeyboardInterrupt

    assert Schedule(period=1, wait=interrupt).repeat(lambda: Ending(1)) == 1


def test_sigterm_reaches_the_work_and_the_blocks_around_it() -> None:
    handler, outer = signal.getsignal(signal.SIGTERM), Event()
    with notify_on_sigterm(outer), stop_on_sigterm() as check:
        check()
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(StoppedError, match="stopped by SIGTERM"):
            check()
    assert outer.is_set()
    assert signal.getsignal(signal.SIGTERM) is handler


def test_sigterm_does_not_reach_the_handler_of_another_program() -> None:
    handler = signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(number))
    try:
        with stop_on_sigterm() as check:
            os.kill(os.getpid(), signal.SIGTERM)
            with pytest.raises(StoppedError):
                check()
        with pytest.raises(SystemExit):
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, handler)


@pytest.mark.parametrize(
    ("options", "message"),
    [(["--every", "soon"], "such as 90d"), (["--every", "15m", "--dry-run"], "cannot be used with --dry-run")],
)
def test_a_schedule_that_makes_no_sense_is_a_usage_error(
    options: Sequence[str], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    ran = rag_in_process(capfd)("ingest", "docs", *options)
    assert (ran.code, message in " ".join(ran.err.replace("│", " ").split())) == (2, True), ran.err
