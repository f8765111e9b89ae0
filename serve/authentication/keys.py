"""Callers with an API key."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from rag_core.errors import AuthenticationError
from rag_core.storage.keys import KeyFinder, KeyParts, StoredKey
from serve.authentication.caller import Caller

CACHE_SECONDS = 10.0
"""The longest time for which a replica accepts a key after it was revoked."""
MAX_CACHED = 10_000


@dataclass(slots=True)
class KeyAuthenticator:
    """Finds callers by their API keys. A replica keeps the keys that it has read for `CACHE_SECONDS`."""

    requires_credentials: ClassVar[bool] = True

    finder: KeyFinder
    clock: Callable[[], float] = time.monotonic
    _cache: dict[str, tuple[float, StoredKey]] = field(default_factory=dict)
    _reading: dict[str, asyncio.Task[StoredKey | None]] = field(default_factory=dict)

    async def authenticate(self, token: str) -> Caller:
        if not token:
            raise AuthenticationError("this gateway requires an API key: send the header Authorization: Bearer rk_…")
        parts = KeyParts.parse(token)
        stored = await self._find(parts.id) if parts else None
        if parts is None or stored is None or not parts.has_secret_of(stored):
            raise AuthenticationError("the API key is not valid")
        if stored.is_revoked:
            raise AuthenticationError("the API key was revoked")
        if stored.is_expired:
            raise AuthenticationError("the API key has expired")
        return Caller(
            tenant=stored.tenant,
            user=stored.user_id,
            groups=tuple(stored.groups),
            scopes=frozenset(stored.scopes),
            key_id=stored.id,
        )

    async def close(self) -> None:
        await self.finder.close()

    async def _find(self, id: str) -> StoredKey | None:
        """Unknown keys are not cached: anybody could fill the cache with them."""
        read_at, stored = self._cache.get(id, (0.0, None))
        if stored is None or self.clock() - read_at > CACHE_SECONDS:
            return await self._read(id)
        return stored

    async def _read(self, id: str) -> StoredKey | None:
        """Reads the key once for all requests that wait for it, so that those of a busy key delay no other key."""
        task = self._reading.get(id)
        if task is None:
            task = self._reading[id] = asyncio.create_task(self.finder.find(id))
            task.add_done_callback(lambda _: self._reading.pop(id))
        stored = await asyncio.shield(task)
        self._cache.pop(id, None)
        if stored is not None:
            while len(self._cache) >= MAX_CACHED:
                self._cache.pop(next(iter(self._cache)))
            self._cache[id] = self.clock(), stored
        return stored
