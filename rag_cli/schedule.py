"""`rag ingest --every`: repeats a sync until the process is interrupted."""

import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import wraps
from threading import Event
from typing import Annotated, Any

import typer

from rag_cli.durations import parse_duration
from rag_cli.termination import notify_on_sigterm
from rag_core.errors import BusyError, StoppedError, UsageError


def parse_period(text: str) -> float:
    """The seconds of a duration. Raises BadParameter for any other text."""
    try:
        return parse_duration(text)
    except UsageError as error:
        raise typer.BadParameter(str(error)) from error


EveryOption = Annotated[
    float | None,
    typer.Option(
        parser=parse_period,
        metavar="DURATION",
        help="Repeat the sync, such as every 15m, until Ctrl-C or SIGTERM. The time counts from the start of a sync.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of one run: its exit code, and the error that it ended with, if any."""

    code: int = 0
    error: BaseException | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Runs that begin every `period` seconds, one after the other.

    A run that takes longer delays the next one, which begins at once. `wait` waits for at most some seconds, and
    returns True if the schedule must end.
    """

    period: float
    wait: Callable[[float], bool]
    clock: Callable[[], float] = time.monotonic

    def repeat(self, run: Callable[[], Ending]) -> int:
        """Returns the exit code of the last run that was not interrupted.

        A run that found its source busy does not count. A first run with a usage error is the last, because it would
        fail again.
        """
        code, is_first = 0, True
        while True:
            started = self.clock()
            ending = run()
            if isinstance(ending.error, KeyboardInterrupt | StoppedError):
                return code
            if not isinstance(ending.error, BusyError):
                code = ending.code
            if is_first and isinstance(ending.error, UsageError):
                return code
            is_first = False
            try:
                if self.wait(max(0.0, started + self.period - self.clock())):
                    return code
            except KeyboardInterrupt:
                return code


def add_every_option(ingest: Callable[..., None]) -> Callable[..., None]:
    """The command with the additional option `--every`."""
    parameters = list(inspect.signature(ingest).parameters.values())

    @wraps(ingest)
    def run(**values: Any) -> None:
        period = values.pop("every")
        if period is None:
            ingest(**values)
            return
        if values["dry_run"]:
            raise typer.BadParameter("--every cannot be used with --dry-run, which changes nothing")
        stopping = Event()

        def wait(seconds: float) -> bool:
            if not values["quiet"] and not stopping.is_set():
                start = datetime.now().astimezone() + timedelta(seconds=seconds)
                typer.echo(f"next sync at {start:%H:%M:%S}", err=True)
            return stopping.wait(seconds)

        with notify_on_sigterm(stopping):
            code = Schedule(period=period, wait=wait).repeat(lambda: _run_once(ingest, values))
        raise typer.Exit(code)

    option = inspect.Parameter("every", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=EveryOption)
    run.__signature__ = inspect.Signature([*parameters, option])  # type: ignore[attr-defined]
    return run


def _run_once(ingest: Callable[..., None], values: dict[str, Any]) -> Ending:
    try:
        ingest(**values)
    except typer.Exit as ended:
        return Ending(ended.exit_code, ended.__cause__)
    return Ending()
