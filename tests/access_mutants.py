"""Mutants of the walls between tenants and users: does the matrix of accesses notice each of them?

Each mutant removes one condition, in a process of its own, and requests the matrix until something is wrong. Between
tenants there are two walls, the statements and the policies of Postgres, and each hides a gap in the other. Mutants
named `... and policies` therefore remove both. With the policies alone removed, nothing may be wrong here;
`tests/integration/test_tenants.py` tests them.

    python tests/access_mutants.py [--only WORD] [--jobs N]
"""

import argparse
import importlib
import multiprocessing
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

ROOT = Path(__file__).parent.parent
TEMPLATE = "migrated"


@dataclass(frozen=True, slots=True)
class Edit:
    """A text of a file, every occurrence of which is replaced."""

    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """Edits of the code, and statements for the database. Routes that contain `first` are tried first.

    `survives`: the matrix must not notice it.
    """

    name: str
    edits: Sequence[Edit] = ()
    statements: Sequence[str] = ()
    first: str = ""
    survives: bool = False


OPEN_POLICIES = """
do $$ declare t text; begin
  for t in select tablename from pg_policies where schemaname = 'rag' and policyname = 'of_tenant' loop
    execute format('alter policy of_tenant on rag.%I using (true)', t);
  end loop;
end $$"""
DROP_REFERENCE = "alter table rag.feedback drop constraint feedback_tenant_answer_id_fkey"
CATALOG, LEDGER = "rag_core/storage/catalog.py", "rag_core/storage/ledger.py"
CONVERSATIONS, REFERENCES = "rag_core/storage/conversation_list.py", "rag_core/storage/conversation_references.py"
KEYS, CURSORS = "serve/authentication/keys.py", "serve/http/cursors.py"
REPLIES = "rag_core/storage/replies.py"

MUTANTS = (
    Mutant("policies alone", statements=[OPEN_POLICIES], survives=True),
    Mutant(
        "tenant of a document and policies",
        [Edit(CATALOG, "where c.tenant = %(tenant)s and (d.access", "where (d.access")],
        [OPEN_POLICIES],
        first="/v1/documents/{id}",
    ),
    Mutant(
        "tenant of the collections and policies",
        [Edit(CATALOG, "where c.tenant = %(tenant)s and c.name > %(after)s", "where c.name > %(after)s")],
        [OPEN_POLICIES],
        first="collections",
    ),
    Mutant(
        "tenant of the jobs and policies",
        [Edit(LEDGER, "where j.tenant = %(tenant)s and (%(job)s::text", "where (%(job)s::text")],
        [OPEN_POLICIES],
        first="jobs",
    ),
    Mutant(
        "tenant of the experiments and policies",
        [Edit("rag_core/storage/exposures.py", "from exposures where tenant = %(tenant)s", "from exposures")],
        [OPEN_POLICIES],
        first="experiments",
    ),
    Mutant(
        "tenant of the conversations and policies",
        [Edit(CONVERSATIONS, "where tenant = %(tenant)s and memory_store = '' and (", "where (")],
        [OPEN_POLICIES],
        first="conversations",
    ),
    Mutant(
        "tenant of a referenced conversation and policies",
        [Edit(REFERENCES, "where tenant = %(tenant)s and id = %(reference)s", "where id = %(reference)s")],
        [OPEN_POLICIES],
        first="conversations",
    ),
    Mutant(
        "tenant and user of an answer and policies",
        [
            Edit(REPLIES, "where tenant = %(tenant)s and id = %(answer_id)s", "where id = %(answer_id)s"),
            Edit(REPLIES, " and %(user)s in ('', user_id)", ""),
        ],
        [OPEN_POLICIES, DROP_REFERENCE],
        first="feedback",
    ),
    Mutant(
        "tenant of the evaluations",
        [Edit("jobs/stored_runs.py", 'report.get("tenant", DEFAULT_TENANT) == tenant', "True")],
        first="evaluations",
    ),
    Mutant(
        "user of a conversation's id",
        [Edit("rag_core/types.py", '{"user": query.user_id} if query.user_id else ', "")],
        first="conversations",
    ),
    Mutant(
        "user of the conversations",
        [Edit(CONVERSATIONS, "user_id = %(owner)s and (user_id <> ''", "(user_id <> ''")],
        first="conversations",
    ),
    Mutant(
        "user of a referenced conversation",
        [Edit(REFERENCES, "user_id = %(user)s or exists", "true or exists")],
        first="conversations",
    ),
    Mutant("user of an answer", [Edit(REPLIES, " and %(user)s in ('', user_id)", "")], first="feedback"),
    Mutant(
        "user of the idempotency keys of jobs",
        [Edit("rag_core/storage/queue.py", '"user_id": request.user_id}', '"user_id": ""}')],
        first="ingest",
    ),
    Mutant(
        "tenant and user of the ids of repeated answers",
        [Edit("serve/routes/answers.py", "[caller.tenant, caller.user, *groups, key,", "[*groups, key,")],
        first="answer",
    ),
    Mutant("user of the cursors", [Edit(CURSORS, "(caller.tenant, caller.user, *name)", "(caller.tenant, *name)")]),
    Mutant("tenant and user of the cursors", [Edit(CURSORS, "(caller.tenant, caller.user, *name)", "name")]),
    Mutant(
        "scope admin for the conversations of others",
        [Edit("serve/routes/conversations.py", 'and "admin" not in caller.scopes', "and False")],
        first="conversations",
    ),
    Mutant(
        "scope of the jobs", [Edit("serve/http/dependencies.py", 'scopes=["jobs:read"]', "scopes=[]")], first="jobs"
    ),
    Mutant(
        "scope of an erasure",
        [Edit("serve/routes/conversations.py", "caller: MemoryDeleter", "caller: Chatter")],
        first="conversations",
    ),
    Mutant(
        "check of all scopes",
        [Edit("serve/authentication/caller.py", "if scope not in self.scopes]", "if not scope]")],
    ),
    Mutant("expiry of a key", [Edit(KEYS, "if stored.is_expired:", "if not stored.id:")]),
    Mutant("revocation of a key", [Edit(KEYS, "if stored.is_revoked:", "if not stored.id:")]),
    Mutant("secret of a key", [Edit(KEYS, " or not parts.has_secret_of(stored)", "")]),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="the mutants whose names contain this")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time")
    arguments = parser.parse_args()
    mutants = [mutant for mutant in MUTANTS if arguments.only in mutant.name]
    folder = Path(tempfile.mkdtemp(prefix="mutants-"))
    folder.chmod(0o755)
    embedded = importlib.import_module("rag_core.storage.embedded")
    try:
        dsn = _start_server(folder)
        # Every mutant imports the code again. Other packages stay, which saves seconds.
        importlib.import_module("access_matrix")
        with multiprocessing.get_context("fork").Pool(arguments.jobs, maxtasksperchild=1) as pool:
            outcomes = pool.imap(_try_mutant, [(mutant, dsn, number) for number, mutant in enumerate(mutants)])
            unexpected = sum(
                _print_outcome(mutant, *outcome) for mutant, outcome in zip(mutants, outcomes, strict=True)
            )
    finally:
        embedded.stop(folder / "postgres")
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{len(mutants)} mutants, {unexpected} with an unexpected outcome")
    sys.exit(bool(unexpected))


def _start_server(folder: Path) -> str:
    """The DSN of a new server with the migrated database TEMPLATE."""
    from rag_core.storage import embedded
    from rag_core.storage.postgres import Postgres

    dsn = embedded.start(folder / "postgres")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("alter system set fsync = off")
        connection.execute("select pg_reload_conf()")
        connection.execute(f"create database {TEMPLATE}".encode())
    Postgres.open(make_conninfo(dsn, dbname=TEMPLATE))
    return dsn


def _try_mutant(work: tuple[Mutant, str, int]) -> tuple[str, int, float]:
    """The first finding, which is empty if there is none, the number of requests, and the seconds."""
    mutant, dsn, number = work
    started, name = time.perf_counter(), f"mutant_{number}"
    _import_mutated(mutant.edits)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"create database {name} template {TEMPLATE} strategy file_copy".encode())
    with psycopg.connect(make_conninfo(dsn, dbname=name), autocommit=True) as connection:
        for statement in mutant.statements:
            connection.execute(statement.encode())
    cells: Counter[tuple[str, str]] = Counter()
    finding = _find_leak(make_conninfo(dsn, dbname=name), mutant.first, cells)
    return finding, cells.total(), time.perf_counter() - started


def _import_mutated(edits: Sequence[Edit]) -> None:
    """Forgets the imported code, and imports it again with the edits."""
    roots = {"rag_core", "rag_cli", "serve", "jobs", *(path.stem for path in (ROOT / "tests").iterdir())} - {"__main__"}
    for name in [name for name in sys.modules if name.partition(".")[0] in roots]:
        del sys.modules[name]
    sys.meta_path.insert(0, _EditingFinder(edits))


class _EditingFinder(PathFinder):
    """Finds the modules of the repository, and loads edited ones."""

    def __init__(self, edits: Sequence[Edit]) -> None:
        self._sources: dict[str, str] = {}
        for edit in edits:
            path = ROOT / edit.file
            source = self._sources.get(str(path)) or path.read_text()
            if edit.old not in source:
                raise ValueError(f"{edit.file} does not contain {edit.old!r}: adapt the mutant")
            self._sources[str(path)] = source.replace(edit.old, edit.new)

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:  # type: ignore[override]
        spec = PathFinder.find_spec(fullname, path, target)
        if spec and spec.origin in self._sources:
            spec.loader = _EditedLoader(fullname, spec.origin, self._sources[spec.origin])
        return spec if spec and spec.origin in self._sources else None


class _EditedLoader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, source: str) -> None:
        super().__init__(fullname, path)
        self._source = source

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002
        return compile(self._source, self.path, "exec")


def _find_leak(dsn: str, first: str, cells: Counter[tuple[str, str]]) -> str:
    from access_examples import OPERATIONS
    from access_matrix import try_operation
    from access_world import open_world

    from rag_core.storage.postgres import Postgres

    operations: Mapping[tuple[str, str], Any] = OPERATIONS
    with tempfile.TemporaryDirectory() as home, open_world(Postgres(dsn), Path(home)) as world:
        for method, route in sorted(operations, key=lambda operation: first not in operation[1]):
            for finding in try_operation(world, method, route, cells):
                return finding
    return ""


def _print_outcome(mutant: Mutant, finding: str, requests: int, seconds: float) -> bool:
    """Prints what became of the mutant. Returns True if it was not expected."""
    verdict = "killed" if finding else "survived"
    print(f"{verdict:9} {mutant.name}  ({requests} requests, {seconds:.0f} s)", flush=True)
    if finding:
        print(f"          {' '.join(finding.split())[:160]}", flush=True)
    return bool(finding) == mutant.survives


if __name__ == "__main__":
    main()
