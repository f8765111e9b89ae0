"""What every command has: the global options, as one value, and errors as one line and an exit code."""

import inspect
import json
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, wraps
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic_core import PydanticSerializationError
from rich.console import Console
from stamina.instrumentation import LoggingOnRetryHook, set_on_retry_hooks

from rag_core.config import Settings
from rag_core.errors import RagError, UsageError
from rag_core.settings import Layered, load_layered
from rag_core.wire import json_text

INTERRUPTED = 130
PIPE_WIDTH = 1000

# By itself it would print a notice of every wait to standard output; and where no logging is set up, bare words.
set_on_retry_hooks([LoggingOnRetryHook])
logging.getLogger("stamina").addHandler(logging.NullHandler())


@dataclass(frozen=True, kw_only=True)
class Globals:
    config: Annotated[Path | None, typer.Option(help="A YAML file with settings.", show_default=False)] = None
    profile: Annotated[str | None, typer.Option(help="The profile to use.", show_default=False)] = None
    set: Annotated[
        list[str] | None, typer.Option(metavar="SECTION.KEY=VALUE", help="One setting.", show_default=False)
    ] = None
    store: Annotated[str | None, typer.Option(help="`embedded`, or a Postgres DSN.", show_default=False)] = None
    tenant: Annotated[str | None, typer.Option(help="Whose data it is.", show_default=False)] = None
    json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout, and nothing else there.")] = False
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Say more.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say only what was asked for, and errors.")] = False

    @property
    def settings(self) -> Settings:
        return self.layered.settings

    @cached_property
    def layered(self) -> Layered:
        named = [("store.url", self.store), ("tenant", self.tenant)]
        overrides = [*(self.set or []), *(f"{key}={json.dumps(value)}" for key, value in named if value is not None)]
        return load_layered(self.config, self.profile, overrides)


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Adds the global options to a command, which takes them as its parameter `options`."""
    own = [each for each in inspect.signature(function, eval_str=True).parameters.values() if each.name != "options"]
    shared = list(inspect.signature(Globals).parameters.values())

    @wraps(function)
    def wrapped(**values: Any) -> None:
        options = Globals(**{each.name: values.pop(each.name) for each in shared})
        try:
            function(options=options, **values)
        except RagError as error:
            _complain(error, options)
            raise typer.Exit(error.exit_code) from None
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            sys.stderr.close()  # the reader, `head` say, has seen enough
            raise typer.Exit(0) from None
        except OSError as error:
            _complain(error, options)
            raise typer.Exit(1) from None
        except (UnicodeEncodeError, PydanticSerializationError):
            wrong = UsageError("what is given here must be UTF-8 text, got bytes that are none")
            _complain(wrong, options)
            raise typer.Exit(wrong.exit_code) from None

    keyword_only = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*own, *shared)]
    wrapped.__signature__ = inspect.Signature(keyword_only)  # type: ignore[attr-defined]
    return wrapped


class _Output(Console):
    def on_broken_pipe(self) -> None:
        """Not the end of the process with an exit code of Rich's own."""
        raise BrokenPipeError


def output(quiet: bool = False) -> Console:
    """Standard output: as wide as the terminal, and never wrapped for a pipe, where lines are counted and searched."""
    return _Output(quiet=quiet, width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False)


def print_json(value: object) -> None:
    typer.echo(json_text(value))


def _complain(error: RagError | OSError, options: Globals) -> None:
    typer.echo(f"error: {error}", err=True)
    if options.json:
        print_json({"error": {"type": type(error).__name__, "message": str(error)}})
