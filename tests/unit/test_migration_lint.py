"""Migrations stop neither readers nor writers: what squawk finds, and rules of our own that need no server."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from documents import ROOT

from rag_core.storage.migration_files import Migration, list_migrations, read_migration
from rag_core.storage.schema import INDEX_NAME

SQUAWK = Path(sys.executable).parent / "squawk"
CHANGES_ROWS = re.compile(r"^(update|delete|insert|merge|with)\b", re.IGNORECASE | re.MULTILINE)
NEW = [migration for migration in list_migrations() if migration.kind != "first"]


def lint(file: Path, kind: str) -> "subprocess.CompletedProcess[str]":
    options = [] if kind == "concurrent" else ["--assume-in-transaction"]
    command = [SQUAWK, "--config", ROOT / ".squawk.toml", *options, file]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("migration", NEW, ids=lambda migration: migration.name)
def test_squawk_finds_no_lock_that_stops_readers_or_writers(migration: Migration) -> None:
    process = lint(ROOT / "rag_core/storage/migrations" / migration.name, migration.kind)
    assert process.returncode == 0, process.stdout


@pytest.mark.parametrize(
    ("statement", "rule"),
    [
        ("create index jobs_by_run_again on jobs (run);", "require-concurrent-index-creation"),
        ("alter table jobs alter column run type text;", "changing-column-type"),
        ("alter table jobs drop column run;", "ban-drop-column"),
        ("alter table jobs rename column run to number;", "renaming-column"),
        ("alter table jobs add constraint positive check (run > 0);", "constraint-missing-not-valid"),
    ],
)
def test_squawk_refuses_what_locks_tables_or_breaks_older_programs(tmp_path: Path, statement: str, rule: str) -> None:
    file = tmp_path / "9999_bad.sql"
    file.write_text(statement)
    process = lint(file, "transaction")
    assert process.returncode == 1
    assert rule in process.stdout


@pytest.mark.parametrize("migration", NEW, ids=lambda migration: migration.name)
def test_a_migration_declares_its_locks_and_changes_rows_in_batches_only(migration: Migration) -> None:
    assert re.search(r"^-- Locks: .+\.$", migration.statements, re.MULTILINE)
    if migration.kind == "transaction":
        outside = re.sub(r"\$\$.*?\$\$", "", migration.statements, flags=re.DOTALL)
        assert not CHANGES_ROWS.search(outside), "change rows in a migration whose name ends with .batches.sql"
    if migration.kind == "concurrent":
        assert INDEX_NAME.search(migration.statements)
        assert migration.statements.rstrip().count(";") == 1


def test_the_numbers_of_migrations_have_no_gap() -> None:
    assert [migration.number for migration in list_migrations()] == list(range(1, len(list_migrations()) + 1))


def test_the_name_and_the_first_lines_say_how_a_migration_runs() -> None:
    statements = "-- Locks: jobs, for a change of the catalog only.\n-- Needs: 29.\ndrop table jobs;"
    contract = read_migration("0031_drop_jobs.sql", statements)
    assert (contract.number, contract.kind, contract.needs) == (31, "transaction", 29)
    assert contract.locks == "jobs, for a change of the catalog only"
    assert read_migration("0032_titles.batches.sql", "").kind == "batches"
    assert read_migration("0032_titles.concurrent.sql", "").kind == "concurrent"
