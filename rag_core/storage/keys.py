"""Keys of the API: `rk_<id>_<secret>`. The store has only a hash of the secret."""

import hmac
import secrets
import string
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Self

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.rows import class_row, dict_row
from psycopg_pool import PoolTimeout

from rag_core.errors import NotFoundError, RagError, StoreError, UsageError
from rag_core.scopes import Scope
from rag_core.storage.audit import Change, record
from rag_core.storage.pools import assume_app_role, build_pool
from rag_core.storage.postgres import SET_TENANT, Postgres, redact_dsn, transaction

FIND = """
select tenant, id, secret_hash, user_id, scopes, groups, coalesce(expires_at <= now(), false) as is_expired,
  revoked_at is not null as is_revoked
from api_keys where id = %(id)s"""
SET_KEY = "select set_config('app.key', %(id)s, true)"
RECORD_USE = """
update api_keys set last_used_at = now() where tenant = %(tenant)s and id = %(id)s
  and (last_used_at is null or last_used_at < now() - interval '1 minute')"""
CREATE = """
insert into api_keys (tenant, id, secret_hash, name, user_id, scopes, groups, expires_at)
values (%(tenant)s, %(id)s, %(secret_hash)s, %(name)s, %(user_id)s, %(scopes)s, %(groups)s,
  now() + make_interval(secs => %(seconds)s))"""
ROTATE = """
insert into api_keys (tenant, id, secret_hash, name, user_id, scopes, groups, expires_at)
select tenant, %(new)s, %(secret_hash)s, name, user_id, scopes, groups,
  coalesce(now() + make_interval(secs => %(seconds)s), expires_at)
from api_keys where tenant = %(tenant)s and id = %(id)s and revoked_at is null and expires_at > now() is not false
returning id"""
END_GRACE = """
update api_keys set expires_at = least(expires_at, now() + make_interval(secs => %(grace)s))
where tenant = %(tenant)s and id = %(id)s"""
LIST = """
select id, case when revoked_at is not null then 'revoked' when expires_at <= now() then 'expired' else 'active' end
  as status, name, user_id, scopes, groups, created_at, expires_at, last_used_at, revoked_at
from api_keys where tenant = %(tenant)s and coalesce(id = %(id)s, true) order by created_at, id"""
REVOKE = """
update api_keys set revoked_at = coalesce(revoked_at, now())
where tenant = %(tenant)s and id = %(id)s returning id"""
REVOKE_USER = """
update api_keys set revoked_at = coalesce(revoked_at, now())
where tenant = %(tenant)s and user_id = %(user)s returning id"""

PREFIX = "rk"
ID_CHARACTERS = string.ascii_letters + string.digits
ID_LENGTH, SECRET_BYTES = 8, 32
KEY_USER = "key:"
"""The beginning of the user of a key that was created without one. The rest is the id of that key."""
MAX_TEXT_CHARS = 200
"""The longest name, user or group of a key, in characters."""
CONNECTIONS = 2
"""Connections of a process. Keys are cached, and reading one takes less than a millisecond."""
LIMIT_STATEMENTS = " -c statement_timeout=5s"


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key as it is checked."""

    tenant: str
    id: str
    secret_hash: bytes
    user_id: str
    scopes: list[Scope]
    groups: list[str]
    is_expired: bool
    is_revoked: bool


@dataclass(frozen=True, slots=True)
class KeyParts:
    """The id and the secret of a key."""

    id: str
    secret: str

    @classmethod
    def generate(cls) -> Self:
        id = "".join(secrets.choice(ID_CHARACTERS) for _ in range(ID_LENGTH))
        return cls(id, secrets.token_urlsafe(SECRET_BYTES))

    @classmethod
    def parse(cls, key: str) -> Self | None:
        """None if the text is not a key."""
        prefix, _, rest = key.partition("_")
        id, _, secret = rest.partition("_")
        is_id = len(id) == ID_LENGTH and all(character in ID_CHARACTERS for character in id)
        return cls(id, secret) if prefix == PREFIX and is_id and secret.isascii() else None

    @property
    def text(self) -> str:
        return f"{PREFIX}_{self.id}_{self.secret}"

    @property
    def secret_hash(self) -> bytes:
        return sha256(self.secret.encode()).digest()

    def has_secret_of(self, stored: StoredKey) -> bool:
        """Compares in constant time."""
        return hmac.compare_digest(self.secret_hash, stored.secret_hash)


def check_text(kind: str, text: str) -> None:
    """Raises UsageError if a name, user or group of a key is too long or has control characters."""
    if len(text) > MAX_TEXT_CHARS or not text.isprintable() or text != text.strip():
        raise UsageError(
            f"the {kind} of a key must have at most {MAX_TEXT_CHARS} printable characters, and no space at its ends, "
            f"got {text!r:.60}"
        )


class Keys:
    """The keys of one tenant, over one connection."""

    def __init__(self, connection: Connection, tenant: str) -> None:
        self._connection, self._tenant = connection, tenant

    def create(
        self,
        scopes: Collection[Scope],
        groups: Collection[str] = (),
        name: str = "",
        user: str = "",
        seconds: float | None = None,
    ) -> KeyParts:
        """Creates a key that expires after `seconds`, or never. Its user is `key:<id>` unless it is given.

        Raises UsageError if the name, the user or a group breaks a rule.
        """
        for kind, text in [("name", name), ("user", user), *(("group", group) for group in groups)]:
            check_text(kind, text)
        if "" in groups:
            raise UsageError("a group of a key must not be empty")
        if user.startswith(KEY_USER):
            raise UsageError(f"the user of a key must not begin with {KEY_USER}, got {user!r:.60}: that is another key")
        parts = KeyParts.generate()
        with transaction(self._connection, self._tenant):
            self._execute(
                CREATE,
                id=parts.id,
                secret_hash=parts.secret_hash,
                name=name,
                user_id=user or f"{KEY_USER}{parts.id}",
                scopes=sorted(scopes),
                groups=sorted(set(groups)),
                seconds=seconds,
            )
            self._record("keys.create", [parts.id], {"scopes": sorted(scopes)})
        return parts

    def rotate(self, id: str, grace: float = 0, seconds: float | None = None) -> KeyParts:
        """Creates a key with the name, user, scopes and groups of another one, which expires after `grace` seconds.

        The new key expires after `seconds`, or else when the old one would have. Raises NotFoundError if the tenant has
        no such key, and UsageError if it was revoked or has expired.
        """
        parts = KeyParts.generate()
        with transaction(self._connection, self._tenant):
            if not self._execute(ROTATE, id=id, new=parts.id, secret_hash=parts.secret_hash, seconds=seconds):
                raise self._refuse_rotation(id)
            self._execute(END_GRACE, id=id, grace=grace)
            self._record("keys.rotate", [id, parts.id])
        return parts

    def _refuse_rotation(self, id: str) -> RagError:
        rows = self._execute(LIST, id=id)
        if not rows:
            return NotFoundError(f"no key {id!r:.60}; `rag keys list` lists the keys")
        return UsageError(f"only an active key can be rotated, and {id} is {rows[0]['status']}: create a new one")

    def list_all(self) -> list[dict[str, Any]]:
        """All keys, the oldest first, without their secrets."""
        return self._execute(LIST, id=None)

    def revoke(self, id: str) -> None:
        """Raises NotFoundError if the tenant has no such key."""
        with transaction(self._connection, self._tenant):
            if not self._execute(REVOKE, id=id):
                raise NotFoundError(f"no key {id!r:.60}; `rag keys list` lists the keys")
            self._record("keys.revoke", [id])

    def revoke_user(self, user: str) -> list[str]:
        """Revokes all keys of a user, and returns their ids. Raises NotFoundError if there are none."""
        with transaction(self._connection, self._tenant):
            if not (rows := self._execute(REVOKE_USER, user=user)):
                raise NotFoundError(f"no key of user {user!r:.60}; `rag keys list` lists the keys")
            ids = sorted(row["id"] for row in rows)
            self._record("keys.revoke", ids)
        return ids

    def _record(self, operation: str, ids: Sequence[str], detail: Mapping[str, Any] = MappingProxyType({})) -> None:
        record(self._connection, self._tenant, Change(operation=operation, kind="key", ids=ids, detail=detail))

    def _execute(self, statement: str, **parameters: object) -> list[dict[str, Any]]:
        scope = {"tenant": self._tenant, **parameters}
        with transaction(self._connection, self._tenant), self._connection.cursor(row_factory=dict_row) as cursor:
            cursor.execute(statement.encode(), scope)
            return cursor.fetchall() if cursor.description else []


class KeyFinder:
    """Reads the keys that requests present. Its connections belong to the event loop that uses it first.

    `protect` surrounds each attempt to get a connection.
    """

    def __init__(self, postgres: Postgres, protect: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        self._protect, self._shown = protect, redact_dsn(postgres.dsn)
        self._pool = build_pool(postgres, LIMIT_STATEMENTS, assume_app_role, min_size=0, max_size=CONNECTIONS)

    async def find(self, id: str) -> StoredKey | None:
        """The key of that id, whatever its tenant, and records its use. Raises StoreError."""
        try:
            with self._protect():
                await self._pool.open()
                async with self._pool.connection() as connection, connection.transaction():
                    return await _find(connection, id)
        except (psycopg.Error, PoolTimeout) as error:
            raise StoreError(f"cannot read from the store at {self._shown}: {str(error).strip()}") from error

    async def close(self) -> None:
        await self._pool.close()


async def _find(connection: AsyncConnection, id: str) -> StoredKey | None:
    await connection.execute(SET_KEY, {"id": id})
    async with connection.cursor(row_factory=class_row(StoredKey)) as cursor:
        key = await (await cursor.execute(FIND, {"id": id})).fetchone()
    if key:
        await connection.execute(SET_TENANT, {"tenant": key.tenant})
        await connection.execute(RECORD_USE, {"tenant": key.tenant, "id": id})
    return key
