"""`rag config`."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from jobs.options import Globals, command, output, print_json
from rag_core.settings import own_profiles, profile_signs
from rag_core.storage.postgres import shown

app = typer.Typer(
    help="Settings: check them, see them with their origin, describe them to an editor.", no_args_is_help=True
)


@app.command()
@command
def check(
    options: Globals,
    file: Annotated[Path | None, typer.Argument(help="The YAML file; else --config.", show_default=False)] = None,
) -> None:
    """Check a configuration: each of its profiles, and that the parts of the chosen one fit together. Exit code 2 if
    they do not, 3 if the model of the chosen one is not there.

    Example: rag config check my.yaml
    """
    from rag_core.answering.generation.prompt import prompt_pack
    from rag_core.wiring.chunking import chunker

    given = replace(options, config=file or options.config)
    prompt_pack(given.settings.prompt.pack)
    chunker(given.settings)
    profile_signs(given.config)
    for profile in own_profiles(given.config):
        prompt_pack(replace(given, profile=profile).settings.prompt.pack)
    if options.json:
        print_json({"ok": True})
    elif not options.quiet:
        typer.echo("ok")


@app.command()
@command
def show(options: Globals) -> None:
    """The effective settings, each with where it was set.

    Example: rag config show --set chunking.tokens=120
    """
    layered = options.layered
    leaves = dict(_leaves(layered.settings.model_dump(mode="json")))
    leaves["store.url"] = shown(leaves["store.url"])
    if options.json:
        print_json({key: {"value": value, "origin": _origin(key, layered.origins)} for key, value in leaves.items()})
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("setting", "value", "origin"):
        table.add_column(name, overflow="fold")
    for key, value in leaves.items():
        table.add_row(key, str(value), _origin(key, layered.origins))
    output().print(table)


@app.command()
@command
def schema(options: Globals) -> None:  # noqa: ARG001 - every command takes them
    """The JSON schema of a configuration file, for editors.

    Example: rag config schema > rag.schema.json
    """
    from rag_core.settings_schema import file_schema

    print_json(file_schema())


def _leaves(tree: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        leaf = f"{path}{key}"
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{leaf}.")
        else:
            yield leaf, value


def _origin(key: str, origins: Mapping[str, str]) -> str:
    return origins.get(key, "default")
