"""Pages of a listing: a cursor names the row that a page ended with, so that rows added meanwhile shift nothing.

It is signed with what only the replicas of one store share, the way to it, and belongs to one tenant's listing. What a
caller may read is asked for with every page all the same.
"""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from rag_core.errors import UsageError
from rag_core.wire import json_bytes
from serve.graph import Graph
from serve.http.access import Caller

MOST_ROWS = 200
SIGNATURE_BYTES = sha256().digest_size


class Paged(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    limit: int = Field(50, ge=1, le=MOST_ROWS)
    cursor: str = ""

    @property
    def one_more(self) -> int:
        """How many rows to ask for, to know whether there are more than the limit."""
        return self.limit + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Rows in the order of `key`. `name` tells it from every listing whose cursors would mean something else here."""

    key: str
    name: Sequence[str | None]
    secret: bytes = field(repr=False)

    def after(self, cursor: str, first: str) -> str:
        """The key behind which the page begins: `first` without a cursor. UsageError for one of no such listing."""
        if not cursor:
            return first
        try:
            signed = urlsafe_b64decode(cursor.encode())
        except ValueError:
            signed = b""
        signature, last = signed[:SIGNATURE_BYTES], signed[SIGNATURE_BYTES:]
        if not hmac.compare_digest(signature, self._signature(last)):
            raise UsageError("a cursor must be the next_cursor of a page of this listing")
        return last.decode()

    def page(self, rows: Sequence[Mapping[str, Any]], limit: int) -> tuple[list[Mapping[str, Any]], dict[str, Any]]:
        """Of `limit` + 1 rows, if there are so many, those of this page, and what it tells of the next."""
        more = len(rows) > limit
        return list(rows[:limit]), {
            "next_cursor": self.cursor(str(rows[limit - 1][self.key])) if more else None,
            "has_more": more,
        }

    def cursor(self, last: str) -> str:
        """For the page behind the row of that key."""
        return urlsafe_b64encode(self._signature(last.encode()) + last.encode()).decode()

    def _signature(self, last: bytes) -> bytes:
        return hmac.digest(self.secret, json_bytes(self.name) + last, sha256)


def listing(graph: Graph, who: Caller, key: str, *name: str | None) -> Listing:
    return Listing(key=key, name=(who.tenant, *name), secret=sha256(graph.postgres.dsn.encode()).digest())
