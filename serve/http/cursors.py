"""Paging of listings by cursors. A cursor names the last row of a page, so rows that are added later shift no page.

Cursors are signed with a secret that all replicas share: the address of the store. A cursor is valid only for one
listing of one user. It grants no access: every page checks again what the caller can read.
"""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from rag_core.errors import UsageError
from rag_core.wire.shape import json_bytes
from serve.authentication.caller import Caller
from serve.services import Services

MAX_ROWS = 200
SIGNATURE_BYTES = sha256().digest_size
NIL_ID = str(UUID(int=0))
"""The key before the first row of a listing that is ordered by UUIDs."""


class PageParameters(BaseModel):
    """The query parameters of a listing."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    limit: int = Field(50, ge=1, le=MAX_ROWS)
    cursor: str = ""

    @property
    def fetch_limit(self) -> int:
        """The number of rows to fetch: one more than the page has, which shows if another page follows."""
        return self.limit + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Rows in the order of their column `key`. `name` identifies the listing: cursors of other listings are invalid."""

    key: str
    name: Sequence[str | None]
    secret: bytes = field(repr=False)

    def decode_cursor(self, cursor: str, first: str) -> str:
        """The key after which the page begins; `first` if the cursor is empty.

        Raises UsageError if the cursor belongs to another listing, or is not a cursor.
        """
        if not cursor:
            return first
        try:
            signed = urlsafe_b64decode(cursor.encode())
        except ValueError:
            signed = b""
        signature, last = signed[:SIGNATURE_BYTES], signed[SIGNATURE_BYTES:]
        if not hmac.compare_digest(signature, self._sign(last)):
            raise UsageError("cursor must be the next_cursor of a page of this listing")
        return last.decode()

    def encode_cursor(self, last: str) -> str:
        """The cursor of the page after the row with that key."""
        return urlsafe_b64encode(self._sign(last.encode()) + last.encode()).decode()

    def split_page(
        self, rows: Sequence[Mapping[str, Any]], limit: int
    ) -> tuple[list[Mapping[str, Any]], dict[str, Any]]:
        """The page's rows, and the body's members `next_cursor` and `has_more`. `rows` has up to `limit` + 1 rows."""
        has_more = len(rows) > limit
        next_cursor = self.encode_cursor(str(rows[limit - 1][self.key])) if has_more else None
        return list(rows[:limit]), {"next_cursor": next_cursor, "has_more": has_more}

    def _sign(self, last: bytes) -> bytes:
        return hmac.digest(self.secret, json_bytes(self.name) + last, sha256)


def build_listing(services: Services, caller: Caller, key: str, *name: str | None) -> Listing:
    secret = sha256(services.postgres.read_dsn().encode()).digest()
    return Listing(key=key, name=(caller.tenant, caller.user, *name), secret=secret)
