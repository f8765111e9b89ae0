"""`rag store dump` and `rag store restore`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from rag_cli.fsck import check_invariants, print_violations
from rag_cli.terminal.options import GlobalOptions, command, print_json
from rag_cli.terminal.steps import show_steps
from rag_core.storage.dump import dump_store
from rag_core.storage.manifest import MANIFESTS, Manifest, manifest_path
from rag_core.storage.postgres import Postgres
from rag_core.storage.restore import restore_store

Replace = Annotated[bool, typer.Option("--yes", help="Replace what exists.")]


@command
def dump(
    file: Annotated[Path, typer.Argument(help="The file to write.", show_default=False)],
    yes: Replace = False,
    *,
    options: GlobalOptions,
) -> None:
    """Write all data of all tenants to a file, in the custom format of pg_dump.

    Searches and jobs continue meanwhile, and the dump is consistent. A second file, FILE.json, has the versions, and
    the number of rows and a digest of each table. The schema is not migrated. Settings, models and keys are not in the
    dump.

    Example: rag store dump /backup/rag.dump
    """
    with show_steps(options) as report_step:
        manifest = dump_store(Postgres.open_unmigrated(options.settings.store.url), file, yes, report_step)
    if options.json:
        print_json({"file": str(file), "manifest": str(manifest_path(file)), **_to_json(manifest)})
    elif not options.quiet:
        typer.echo(f"{file}: {manifest.size} bytes, schema {manifest.schema_version}; {_describe_rows(manifest)}")


@command
def restore(
    file: Annotated[Path, typer.Argument(help="A file that `rag store dump` wrote.", show_default=False)],
    yes: Replace = False,
    *,
    options: GlobalOptions,
) -> None:
    """Restore a dump into an empty store; with --yes, replace the contents of the store.

    Stop gateways and jobs before. Every table is compared with the manifest, the schema is migrated if the dump is
    older, and the invariants are checked as by `rag fsck`. If the rows cannot be restored, the store is as it was
    before. The exit code is 1 if an invariant is broken.

    Example: rag store restore /backup/rag.dump
    """
    postgres = Postgres.open_unmigrated(options.settings.store.url)
    with show_steps(options) as report_step:
        manifest = restore_store(postgres, file, yes, report_step)
    violations = check_invariants(postgres, options)
    if options.json:
        print_json({"file": str(file), **_to_json(manifest), "violations": len(violations)})
    elif not options.quiet:
        typer.echo(f"restored, and equal to the manifest: {_describe_rows(manifest)}")
    if violations:
        print_violations(violations, sys.stderr)
        raise typer.Exit(1)


def _describe_rows(manifest: Manifest) -> str:
    tables = ("documents", "chunks", "vectors", "conversations", "jobs")
    return ", ".join(f"{manifest.tables[name].rows} {name}" for name in tables if name in manifest.tables)


def _to_json(manifest: Manifest) -> dict[str, object]:
    values: dict[str, object] = MANIFESTS.dump_python(manifest, mode="json")
    return values
