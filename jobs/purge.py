"""Erasure of what a tenant, a user or a session has left, in the store and in files. `python -m jobs.purge` is
`rag purge`."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from jobs.command_line import run_command
from jobs.stored_runs import StoredRun, list_stored_runs
from rag_core.answering.split import hash_conversation
from rag_core.storage.erasure import ErasureScope, TableCount, erase
from rag_core.storage.postgres import Postgres


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCount:
    """A file or folder, with the number of lines or folders to erase, and of those that are left."""

    file: str
    found: int
    left: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeReport:
    """What was found and what is left, by table and by file."""

    tables: Sequence[TableCount]
    files: Sequence[FileCount]

    @property
    def left(self) -> int:
        return sum(count.left for count in (*self.tables, *self.files))


def purge(postgres: Postgres, scope: ErasureScope, dry_run: bool = False, rewrite: bool = False) -> PurgeReport:
    """Erases rows, then files. See `erase` for the arguments. It can be repeated after an error."""
    tables = erase(postgres, scope, partial(hash_conversation, scope.tenant), dry_run, rewrite)
    files = [purge_run(run, dry_run) for run in list_stored_runs(scope.tenant)] if scope.covers_tenant else []
    return PurgeReport(tables=tables, files=files)


def purge_run(run: StoredRun, dry_run: bool) -> FileCount:
    if not dry_run:
        shutil.rmtree(run.folder)
    return FileCount(file=str(run.folder), found=1, left=int(run.folder.exists()))


if __name__ == "__main__":
    run_command("purge")
