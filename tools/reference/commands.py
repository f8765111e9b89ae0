"""The page of the commands, from their options."""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from typer.main import get_command

from rag_cli.app import app
from rag_cli.terminal.options import GlobalOptions
from tools.reference.markdown import table

INTRODUCTION = """\
# Commands

`rag --help` lists the commands, and `rag COMMAND --help` describes one. Results go to standard output, progress and
errors to standard error.

| exit code | meaning |
| --- | --- |
| 0 | done |
| 1 | a document failed, a check found something, or the work failed; the message says what |
| 2 | the command, a setting or a value is wrong: repeating it cannot succeed |
| 3 | the store, the cluster, a model or a server is unavailable: repeating it can succeed |

Every command has these options, too:
"""
HEADINGS = ("argument or option", "default", "meaning")
_GLOBAL_NAMES = {field.name for field in fields(GlobalOptions)}


def render_commands() -> str:
    group: Any = get_command(app)
    options = table(HEADINGS, [_describe(each) for each in group.commands["ask"].params if each.name in _GLOBAL_NAMES])
    return "\n".join([INTRODUCTION, options, *_render_command(group, "rag")])


def _render_command(command: Any, name: str) -> Iterator[str]:
    """Yields the parts of a command, or of all commands of a group."""
    if hasattr(command, "commands"):
        for subcommand in command.commands.values():
            yield from _render_command(subcommand, f"{name} {subcommand.name}")
        return
    description, _, example = command.help.partition("Example:")
    yield f"## {name}\n\n{description.strip()}\n"
    if example:
        yield f"Example: `{' '.join(example.split())}`\n"
    own = [each for each in command.params if each.name not in _GLOBAL_NAMES and not each.hidden]
    if own:
        yield table(HEADINGS, [_describe(parameter) for parameter in own])


def _describe(parameter: Any) -> tuple[str, str, str]:
    """The names of an argument or option, its default, and its meaning."""
    names = ", ".join(f"`{option}`" for option in [*parameter.opts, *parameter.secondary_opts])
    if parameter.param_type_name == "argument":
        names = f"`{parameter.name.upper()}`"
    elif parameter.metavar:
        names = f"{names} `{parameter.metavar}`"
    has_default = parameter.default not in (None, False, (), [])
    default = "required" if parameter.required else f"`{parameter.default}`" if has_default else ""
    return names, default, parameter.help or ""
