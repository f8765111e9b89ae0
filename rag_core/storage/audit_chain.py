"""The chain of the audit: each row has a hash of itself and of the row before it.

The hash is sha256 of the previous row's hash, 32 bytes, and of these lines, separated by line feeds: `n`, `at`, the
tenant and the content. It is computed by `append_audit` in the store, and again here.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """A row as it was hashed. `at` is in UTC with microseconds, `content` a JSON object, `hash` hexadecimal."""

    tenant: str
    n: int
    at: str
    content: str
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainEnd:
    """A position in the chain: a row and its hash. `n` is 0 and the hash empty before the first row."""

    n: int
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenRow:
    """The first row at which the chain is broken."""

    n: int
    reason: str


BEGINNING = ChainEnd(n=0, hash="")


def compute_hash(previous: str, row: AuditRow) -> str:
    """The hash that the row must have after a row with the hash `previous`."""
    lines = "\n".join([str(row.n), row.at, row.tenant, row.content])
    return sha256(bytes.fromhex(previous) + lines.encode()).hexdigest()


def follow_chain(rows: Iterable[AuditRow], start: ChainEnd = BEGINNING) -> tuple[ChainEnd, BrokenRow | None]:
    """Checks rows in order of `n`. Returns the last intact row, and the first broken one if there is any."""
    end = start
    for row in rows:
        if row.n > end.n + 1:
            return end, BrokenRow(n=end.n + 1, reason=f"rows {end.n + 1} to {row.n - 1} are missing")
        if row.n <= end.n:
            return end, BrokenRow(n=row.n, reason=f"a row with number {row.n} was inserted")
        if compute_hash(end.hash, row) != row.hash:
            return end, BrokenRow(n=row.n, reason="the row was changed, or inserted: its hash does not match")
        end = ChainEnd(n=row.n, hash=row.hash)
    return end, None


def find_lost_end(end: ChainEnd, head: ChainEnd) -> BrokenRow | None:
    """The break between the last row and the end of the chain as the store knows it; None if they are the same."""
    if end == head:
        return None
    is_missing = head.n > end.n
    reason = f"rows {end.n + 1} to {head.n} are missing" if is_missing else "the stored end of the chain differs"
    return BrokenRow(n=end.n + 1, reason=reason)
