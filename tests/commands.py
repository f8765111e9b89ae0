"""The `rag` command in this process. A child process would take seconds to import everything again."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import pytest

from rag_cli.app import app


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document of standard output."""
        assert self.out.count("\n") == 1
        return json.loads(self.out)


Rag: TypeAlias = Callable[..., Ran]


def rag_in_process(capture: pytest.CaptureFixture[str]) -> Rag:
    """A function that runs `rag` with its arguments to the end. `capture` is the fixture `capfd`."""

    def run(*arguments: object) -> Ran:
        with pytest.raises(SystemExit) as ended:
            app([str(argument) for argument in arguments])
        captured = capture.readouterr()
        return Ran(int(ended.value.code or 0), captured.out, captured.err)

    return run
