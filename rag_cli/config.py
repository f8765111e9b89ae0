"""`rag config`."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.table import Table

from rag_cli.terminal.consoles import stdout_console
from rag_cli.terminal.options import GlobalOptions, command, print_json
from rag_core.config import HIDE_SECRETS
from rag_core.errors import UsageError
from rag_core.settings import read_detection, read_document, read_profiles
from rag_core.storage.postgres import redact_dsn

app = typer.Typer(
    help="Settings: check them, show them with their origin, print their schema, import foreign ones.",
    no_args_is_help=True,
)


@app.command()
@command
def check(
    options: GlobalOptions,
    file: Annotated[
        Path | None, typer.Argument(help="The YAML file; by default that of --config.", show_default=False)
    ] = None,
) -> None:
    """Check all profiles of a configuration, and that the parts of the selected profile fit together.

    Own objects (`type: python`) are built and tried with a small sample. The exit code is 2 if a check fails, and 3 if
    the model of the selected profile is missing.

    Example: rag config check my.yaml
    """
    from rag_core.answering.generation.prompt import load_prompt_pack
    from rag_core.wiring.chunking import build_chunker
    from rag_core.wiring.object_trials import try_python_objects
    from rag_core.wiring.parsing import check_parsers

    file_options = replace(options, config=file or options.config)
    load_prompt_pack(file_options.settings.prompt.pack)
    try_python_objects(file_options.settings)
    build_chunker(file_options.settings)
    check_parsers(file_options.settings.parsing)
    read_detection(file_options.config)
    for profile in read_profiles(file_options.config):
        load_prompt_pack(replace(file_options, profile=profile).settings.prompt.pack)
    if options.json:
        print_json({"ok": True})
    elif not options.quiet:
        typer.echo("ok")


@app.command()
@command
def show(options: GlobalOptions) -> None:
    """Show the effective settings, and the origin of each.

    Example: rag config show --set chunking.tokens=120
    """
    layered = options.layered
    values = dict(_flatten_settings(layered.settings.model_dump(mode="json", context=HIDE_SECRETS)))
    values["store.url"] = redact_dsn(layered.settings.store.url)
    origins = {key: layered.origins.get(key, "default") for key in values}
    if options.json:
        print_json({key: {"value": value, "origin": origins[key]} for key, value in values.items()})
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("setting", "value", "origin"):
        table.add_column(name, overflow="fold")
    for key, value in values.items():
        table.add_row(key, str(value), origins[key])
    stdout_console().print(table)


@app.command()
@command
def schema(options: GlobalOptions) -> None:  # noqa: ARG001 - every command has these options
    """Print the JSON schema of a configuration file, for editors.

    Example: rag config schema > rag.schema.json
    """
    from rag_core.settings_schema import file_schema

    print_json(file_schema())


@app.command("import")
@command
def import_config(
    file: Annotated[Path, typer.Argument(help="A YAML file with `ingestion_pipeline`, `profiles` or `retriever`.")],
    options: GlobalOptions,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write to this new file instead of stdout.", show_default=False)
    ] = None,
) -> None:
    """Translate a pipeline's or retriever's configuration of another shape into settings, printed as YAML.

    Values that the settings cannot hold are reported, one note each. Chunks are cut to the window of the selected
    profile's embedding model; its reranker stands in for one without a model.

    Example: rag config import pipeline.yaml --out my.yaml
    """
    from rag_core.config_import.notices import list_notices
    from rag_core.config_import.shapes import read_foreign_config
    from rag_core.config_import.target import describe_target
    from rag_core.config_import.translation import translate

    if out and out.exists():
        raise UsageError(f"{out} exists already; choose another file for --out")
    config, target = read_foreign_config(read_document(file)), describe_target(options.settings)
    settings, notices = translate(config, target), list_notices(config, target)
    text = yaml.safe_dump(settings, sort_keys=False)
    if out:
        out.write_text(text)
    if options.json:
        print_json({"settings": settings, "notices": notices})
        return
    if not out:
        sys.stdout.write(text)
    for notice in notices if not options.quiet else ():
        typer.echo(f"note: {notice}", err=True)


def _flatten_settings(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields each setting as its dotted name and its value."""
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from _flatten_settings(value, f"{name}.")
        else:
            yield name, value
