"""Mutants of the walls between tenants and users: does the matrix of accesses notice each of them?

Each mutant removes one condition in a copy of the repository, and runs `tests/integration/test_access_matrix.py` there.
The matrix must fail. Between tenants there are two walls, the statements and the policies of Postgres, and each hides a
gap in the other. Mutants named `... and policies` therefore remove both. With the policies alone removed, the matrix
must still pass, and `tests/integration/test_tenants.py` must fail.

    python -m benchmarks.access_mutants [--only WORD]
"""

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parent.parent
MATRIX = "tests/integration/test_access_matrix.py"
POLICIES_TEST = "tests/integration/test_tenants.py::test_a_tenant_can_neither_change_nor_take_the_rows_of_another"


@dataclass(frozen=True, slots=True)
class Edit:
    """A text of a file, every occurrence of which is replaced."""

    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """`test` must fail; if `passing` is given, that test must pass nevertheless."""

    name: str
    edits: Sequence[Edit]
    test: str = MATRIX
    passing: str = ""


POLICIES = Edit(
    "rag_core/storage/schema.py", "using (tenant = (select current_setting(''app.tenant'', true)))", "using (true)"
)
CATALOG, LEDGER = "rag_core/storage/catalog.py", "rag_core/storage/ledger.py"
CONVERSATIONS, REFERENCES = "rag_core/storage/conversation_list.py", "rag_core/storage/conversation_references.py"
KEYS, DEPENDENCIES = "serve/authentication/keys.py", "serve/http/dependencies.py"

MUTANTS = (
    Mutant("policies alone", [POLICIES], POLICIES_TEST, passing=MATRIX),
    Mutant(
        "tenant of a document and policies",
        [POLICIES, Edit(CATALOG, "where c.tenant = %(tenant)s and (d.access", "where (d.access")],
    ),
    Mutant(
        "tenant of the collections and policies",
        [POLICIES, Edit(CATALOG, "where c.tenant = %(tenant)s and c.name > %(after)s", "where c.name > %(after)s")],
    ),
    Mutant(
        "tenant of the jobs and policies",
        [POLICIES, Edit(LEDGER, "where j.tenant = %(tenant)s and (%(job)s::text", "where (%(job)s::text")],
    ),
    Mutant(
        "tenant of the experiments and policies",
        [POLICIES, Edit("rag_core/storage/exposures.py", "from exposures where tenant = %(tenant)s", "from exposures")],
    ),
    Mutant(
        "tenant of the conversations and policies",
        [POLICIES, Edit(CONVERSATIONS, "where tenant = %(tenant)s and memory_store = '' and (", "where (")],
    ),
    Mutant(
        "tenant of a referenced conversation and policies",
        [POLICIES, Edit(REFERENCES, "where tenant = %(tenant)s and id = %(reference)s", "where id = %(reference)s")],
    ),
    Mutant(
        "tenant of an answer and policies",
        [
            POLICIES,
            Edit(
                "rag_core/storage/replies.py",
                "where tenant = %(tenant)s and id = %(answer_id)s",
                "where id = %(answer_id)s",
            ),
            Edit("rag_core/storage/replies.py", " and %(user)s in ('', user_id)", ""),
            Edit(
                "rag_core/storage/migrations/0018_replies.sql",
                ",\n  foreign key (tenant, answer_id) references replies (tenant, id) on delete cascade",
                "",
            ),
        ],
    ),
    Mutant(
        "tenant of the evaluations",
        [Edit("jobs/stored_runs.py", 'report.get("tenant", DEFAULT_TENANT) == tenant', "True")],
    ),
    Mutant(
        "user of a conversation's id", [Edit("rag_core/types.py", '{"user": query.user_id} if query.user_id else ', "")]
    ),
    Mutant(
        "user of the conversations",
        [Edit(CONVERSATIONS, "user_id = %(owner)s and (user_id <> ''", "(user_id <> ''")],
    ),
    Mutant("user of a referenced conversation", [Edit(REFERENCES, "user_id = %(user)s or exists", "true or exists")]),
    Mutant("user of an answer", [Edit("rag_core/storage/replies.py", " and %(user)s in ('', user_id)", "")]),
    Mutant(
        "user of the idempotency keys of jobs",
        [Edit("rag_core/storage/queue.py", '"user_id": request.user_id}', '"user_id": ""}')],
    ),
    Mutant(
        "tenant and user of the ids of repeated answers",
        [Edit("serve/routes/answers.py", "[caller.tenant, caller.user, *groups, key,", "[*groups, key,")],
    ),
    Mutant(
        "user of the cursors",
        [Edit("serve/http/cursors.py", "(caller.tenant, caller.user, *name)", "(caller.tenant, *name)")],
    ),
    Mutant(
        "tenant and user of the cursors",
        [Edit("serve/http/cursors.py", "(caller.tenant, caller.user, *name)", "name")],
    ),
    Mutant(
        "scope admin for the conversations of others",
        [Edit("serve/routes/conversations.py", 'and "admin" not in caller.scopes', "and False")],
    ),
    Mutant("scope of the jobs", [Edit(DEPENDENCIES, 'scopes=["jobs:read"]', "scopes=[]")]),
    Mutant(
        "scope of an erasure",
        [Edit("serve/routes/conversations.py", "caller: MemoryDeleter", "caller: Chatter")],
    ),
    Mutant("check of all scopes", [Edit("serve/http/caller.py", "if scope not in caller.scopes]", "if not scope]")]),
    Mutant("expiry of a key", [Edit(KEYS, "if stored.is_expired:", "if not stored.id:")]),
    Mutant("revocation of a key", [Edit(KEYS, "if stored.is_revoked:", "if not stored.id:")]),
    Mutant("secret of a key", [Edit(KEYS, " or not parts.has_secret_of(stored)", "")]),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="the mutants whose names contain this")
    arguments = parser.parse_args()
    mutants = [mutant for mutant in MUTANTS if arguments.only in mutant.name]
    with _copy_repository() as copy:
        survivors = [mutant.name for mutant in mutants if not _is_killed(mutant, copy)]
    print(f"{len(mutants) - len(survivors)} of {len(mutants)} mutants were killed")
    sys.exit(bool(survivors))


def _is_killed(mutant: Mutant, copy: Path) -> bool:
    started = time.perf_counter()
    with _applied(mutant.edits, copy):
        evidence = _find_failure(mutant.test, copy)
        unexpected = _find_failure(mutant.passing, copy) if mutant.passing else ""
    verdict = "killed" if evidence and not unexpected else "SURVIVED"
    print(f"{verdict}  {mutant.name}  ({time.perf_counter() - started:.0f} s)", flush=True)
    print(f"          {unexpected or evidence or 'no test failed'}", flush=True)
    return verdict == "killed"


@contextmanager
def _copy_repository() -> Iterator[Path]:
    """A copy of the files that git knows."""
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    with TemporaryDirectory() as folder:
        for name in files.decode().split("\0")[:-1]:
            target = Path(folder) / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).is_file():
                target.write_bytes((ROOT / name).read_bytes())
        yield Path(folder)


@contextmanager
def _applied(edits: Sequence[Edit], copy: Path) -> Iterator[None]:
    """Changes the copy for the duration of the block. Raises ValueError if a text does not occur."""
    originals = {edit.file: (copy / edit.file).read_text() for edit in edits}
    try:
        for edit in edits:
            text = (copy / edit.file).read_text()
            if edit.old not in text:
                raise ValueError(f"{edit.file} does not contain {edit.old!r}: adapt the mutant")
            (copy / edit.file).write_text(text.replace(edit.old, edit.new))
        yield
    finally:
        for file, text in originals.items():
            (copy / file).write_text(text)


def _find_failure(test: str, copy: Path) -> str:
    """The first line of what the test reports, or an empty text if it passes."""
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    command = [sys.executable, "-m", "pytest", "-n1", "-q", "-x", "--no-header", "-p", "no:cacheprovider", test]
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return ""
    failed = re.search(r"^FAILED \S+::(\S+)", done.stdout, re.MULTILINE)
    lines = [line for line in re.findall(r"^E +(\S.*)", done.stdout, re.MULTILINE) if line != "AssertionError:"]
    return f"{failed[1] if failed else 'no test ran'}: {lines[0] if lines else done.stdout[-300:]}"[:240]


if __name__ == "__main__":
    main()
