"""Erasure of lines in log files, while other processes append to them."""

import json
import os
import re
import tempfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from rag_core.storage.embedded import data_folder, rag_home
from rag_core.telemetry.logs import MIN_QUERY_CHARS, query_hash

NAMES = re.compile(r"\.(log|out|err)(\.\d+)?$")
"""Those of log files, also of full ones that were renamed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCount:
    """A file or folder, with the number of its lines or files to erase, and of those that are left."""

    file: str
    found: int
    left: int


def find_log_files() -> list[Path]:
    """The log files of this machine that this user can write: those of RAG_HOME, and those of all sessions of Ray.

    Links to other places are not followed: anybody can put one into the system's folder for temporary files.
    """
    logs, ray = rag_home() / "logs", Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()) / "ray"
    files = {(data_folder() / "log").resolve()}
    for root, folders in ((logs, [logs]), (ray, ray.glob("session_*/logs"))):
        named = [file.resolve() for folder in folders for file in folder.rglob("*") if NAMES.search(file.name)]
        files.update(file for file in named if file.is_relative_to(root.resolve()))
    return sorted(file for file in files if file.is_file() and os.access(file, os.R_OK | os.W_OK))


def mark_tenant(tenant: str) -> frozenset[str]:
    """What every log line of the tenant has."""
    return frozenset({f'"tenant": {json.dumps(tenant, ensure_ascii=False)}'})


def mark_texts(texts: Collection[str]) -> frozenset[str]:
    """What log lines have that quote one of the texts, or their hash. Short texts are recognized by the hash only."""
    long_texts = (json.dumps(text, ensure_ascii=False)[1:-1] for text in texts if len(text) >= MIN_QUERY_CHARS)
    return frozenset([*long_texts, *map(query_hash, texts)])


def erase_lines(file: Path, marks: Collection[str], dry_run: bool) -> FileCount:
    """Removes the lines that have one of the marks. The file stays the same one, because others have it open.

    A line that is appended while the file is written can be lost.
    """
    encoded = [mark.encode() for mark in marks]
    with file.open("rb" if dry_run else "r+b") as opened:
        lines = opened.readlines()
        kept = [line for line in lines if not any(mark in line for mark in encoded)]
        found = len(lines) - len(kept)
        if found and not dry_run:
            opened.seek(0)
            opened.writelines(kept)
            opened.truncate()
    left = found if dry_run else erase_lines(file, marks, dry_run=True).found
    return FileCount(file=str(file), found=found, left=left)
