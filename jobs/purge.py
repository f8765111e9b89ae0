"""Erasure of what a tenant, a user or a session has left, in the store and in files. `python -m jobs.purge` is
`rag purge`."""

import shutil
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from jobs.command_line import run_command
from jobs.log_lines import FileCount, erase_lines, find_log_files, mark_tenant, mark_texts
from jobs.stored_runs import StoredRun, list_stored_runs
from rag_core.answering.split import hash_conversation
from rag_core.encryption import PLAIN_TEXT, TextCipher
from rag_core.storage.erasure import ErasureScope, TableCount, erase, find_marks
from rag_core.storage.postgres import Postgres


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeReport:
    """What was found and what is left, by table and by file.

    `unreadable` texts could not be decrypted: log lines that quote them are not recognized.
    """

    tables: Sequence[TableCount]
    files: Sequence[FileCount]
    unreadable: int = 0

    @property
    def left(self) -> int:
        return sum(count.left for count in self.tables) + sum(count.left for count in self.files)


def purge(
    postgres: Postgres,
    scope: ErasureScope,
    dry_run: bool = False,
    rewrite: bool = False,
    cipher: TextCipher = PLAIN_TEXT,
) -> PurgeReport:
    """Erases lines of this machine's logs and evaluations of the tenant, then rows: see `erase` for the arguments.

    The lines are those that quote a user or a conversation, or all of a tenant; old lines end with their files. The
    rows are last because they tell which lines to erase. So it can be repeated after an error.
    """
    hash_session = partial(hash_conversation, scope.tenant)
    files, unreadable = list[FileCount](), 0
    if scope.covers_tenant:
        files += [*purge_logs(mark_tenant(scope.tenant), dry_run)]
        files += [purge_run(run, dry_run) for run in list_stored_runs(scope.tenant)]
    elif not scope.days:
        marks = find_marks(postgres, scope, hash_session, cipher)
        files, unreadable = list(purge_logs(mark_texts(marks.texts), dry_run)), marks.unreadable
    tables = erase(postgres, scope, hash_session, dry_run, rewrite)
    return PurgeReport(tables=tables, files=files, unreadable=unreadable)


def purge_logs(marks: Collection[str], dry_run: bool) -> Iterator[FileCount]:
    """Erases the lines that have one of the marks."""
    for file in find_log_files():
        count = erase_lines(file, marks, dry_run)
        if count.found:
            yield count


def purge_run(run: StoredRun, dry_run: bool) -> FileCount:
    if not dry_run and run.folder.exists():  # it went already if it is in the folder of another run
        shutil.rmtree(run.folder)
    return FileCount(file=str(run.folder), found=1, left=int(run.folder.exists()))


if __name__ == "__main__":
    run_command("purge")
