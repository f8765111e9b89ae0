"""The numbered migrations, and what the name and the first lines of their files say about them."""

import re
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["first", "transaction", "concurrent", "batches"]
"""How a migration runs. `first`: together with others of its kind, in one transaction that locks all tables.
`transaction`: in its own. `concurrent`: one statement outside a transaction, which builds an index. `batches`: one
statement that is repeated, each time in its own transaction, until it changes no row."""

MIGRATIONS = files("rag_core.storage") / "migrations"
LAST_OF_FIRST_KIND = 27
"""The migrations up to this number were written before there were other kinds."""
LOCKS = re.compile(r"^-- Locks: (.+)\.$", re.MULTILINE)
NEEDS = re.compile(r"^-- Needs: (\d+)\.$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One file. `locks` describes the locks that stop readers or writers.

    Programs that do not know the migration `needs` cannot use the store afterwards; 0: all programs can.
    """

    number: int
    name: str
    kind: Kind
    statements: str
    locks: str
    needs: int


def list_migrations() -> list[Migration]:
    """All migrations, in order."""
    names = sorted(file.name for file in MIGRATIONS.iterdir() if file.name.endswith(".sql"))
    return [read_migration(name, (MIGRATIONS / name).read_text()) for name in names]


def read_migration(name: str, statements: str) -> Migration:
    """Reads a file such as `0029_documents_by_status.concurrent.sql`."""
    locks, needs, number = LOCKS.search(statements), NEEDS.search(statements), int(name[:4])
    return Migration(
        number=number,
        name=name,
        kind="first" if number <= LAST_OF_FIRST_KIND else _kind_of(name),
        statements=statements,
        locks=locks[1] if locks else "all tables until all migrations of this kind have ended",
        needs=int(needs[1]) if needs else 0,
    )


def _kind_of(name: str) -> Kind:
    if name.endswith(".concurrent.sql"):
        return "concurrent"
    return "batches" if name.endswith(".batches.sql") else "transaction"
