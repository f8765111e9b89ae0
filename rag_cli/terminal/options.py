"""The global options of all commands, and errors as one line and an exit code."""

import inspect
import json
import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, wraps
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic_core import PydanticSerializationError
from stamina.instrumentation import LoggingOnRetryHook, set_on_retry_hooks

from rag_cli.terminal.command_secrets import find_warning, refuse_submitted_secrets
from rag_core.config import Settings
from rag_core.errors import ConfigError, ModelError, RagError, UsageError
from rag_core.settings import LayeredSettings, load_layered_settings, read_detection
from rag_core.wire.shape import json_text

INTERRUPT_EXIT_CODE = 130

# By default, stamina prints every wait to standard output. Logging without a handler prints bare messages.
set_on_retry_hooks([LoggingOnRetryHook])
logging.getLogger("stamina").addHandler(logging.NullHandler())


@dataclass(frozen=True, kw_only=True)
class GlobalOptions:
    """The options that every command has."""

    config: Annotated[Path | None, typer.Option(help="A YAML file with settings.", show_default=False)] = None
    profile: Annotated[str | None, typer.Option(help="The profile to use.", show_default=False)] = None
    set: Annotated[
        list[str] | None,
        typer.Option(metavar="SECTION.KEY=VALUE", help="Override a setting; repeatable.", show_default=False),
    ] = None
    store: Annotated[str | None, typer.Option(help="The store: `embedded`, or a Postgres DSN.", show_default=False)] = (
        None
    )
    tenant: Annotated[str | None, typer.Option(help="The tenant that owns the data.", show_default=False)] = None
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document to stdout, and nothing else.")] = False
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print more details.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only results and errors.")] = False

    @property
    def settings(self) -> Settings:
        return self.layered.settings

    @cached_property
    def layered(self) -> LayeredSettings:
        return load_layered_settings(self.config, self.profile, self.overrides)

    @property
    def overrides(self) -> list[str]:
        """All options that change a setting, as SECTION.KEY=VALUE."""
        named = [("store.url", self.store), ("tenant", self.tenant)]
        return [*(self.set or []), *(f"{key}={json.dumps(value)}" for key, value in named if value is not None)]


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Adds the global options to a command, which takes them as its parameter `options`.

    Errors are printed as one line, and determine the exit code. They are the cause of the `typer.Exit`.
    """
    parameters = inspect.signature(function, eval_str=True).parameters.values()
    own_parameters = [parameter for parameter in parameters if parameter.name != "options"]
    global_parameters = list(inspect.signature(GlobalOptions).parameters.values())

    @wraps(function)
    def run(**values: Any) -> None:
        options = GlobalOptions(**{parameter.name: values.pop(parameter.name) for parameter in global_parameters})
        if not options.quiet and (warning := find_warning(options.overrides)):
            typer.echo(warning, err=True)
        try:
            refuse_submitted_secrets(options.overrides)
            function(options=options, **values)
        except RagError as error:
            print_error(error, options, _suggest_variant(error, options))
            raise typer.Exit(error.exit_code) from error
        except KeyboardInterrupt as error:
            typer.echo("interrupted", err=True)
            raise typer.Exit(INTERRUPT_EXIT_CODE) from error
        except BrokenPipeError:
            sys.stderr.close()  # the reader, such as `head`, has ended
            raise typer.Exit(0) from None
        except OSError as error:
            print_error(error, options)
            raise typer.Exit(1) from None
        except (UnicodeEncodeError, PydanticSerializationError):
            usage_error = UsageError("arguments must be UTF-8 text, got other bytes")
            print_error(usage_error, options)
            raise typer.Exit(usage_error.exit_code) from None

    keyword_only = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in (*own_parameters, *global_parameters)
    ]
    run.__signature__ = inspect.Signature(keyword_only)  # type: ignore[attr-defined]
    return run


def print_json(value: object) -> None:
    typer.echo(json_text(value))


def _suggest_variant(error: RagError, options: GlobalOptions) -> str:
    """A hint at the CPU variant of the profile, if one of its models is missing."""
    if not isinstance(error, ModelError):
        return ""
    profile = options.profile or os.environ.get("RAG_PROFILE", "")
    with suppress(ConfigError):  # the patterns of a profile are not checked before
        if variant := read_detection(options.config).cpu_variants.get(profile):
            return f"; without a GPU or a model hub, use --profile {variant}"
    return ""


def print_error(error: RagError | OSError, options: GlobalOptions, hint: str = "") -> None:
    typer.echo(f"error: {error}{hint}", err=True)
    if options.json:
        print_json({"error": {"type": type(error).__name__, "message": f"{error}{hint}"}})
