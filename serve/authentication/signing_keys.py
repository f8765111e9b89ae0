"""The public keys with which an OpenID provider signs its access tokens (a JWKS of RFC 7517)."""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx2
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt import PyJWK, PyJWTError
from pydantic import BaseModel, Field

from rag_core.config import JwtSettings, check_secure_url
from rag_core.errors import UnavailableError, describe_error, first_line

FRESH_SECONDS = 600.0
"""The age at which the keys are read again: the longest time for which a key is accepted after its removal."""
USABLE_SECONDS = 86_400.0
"""The age up to which the keys are used while the provider cannot be reached."""
PAUSE = 60.0
"""The shortest time between two reads because of unknown keys. Anybody can send tokens that name such keys."""
PAUSE_WITHOUT_KEYS = 5.0
"""The shortest time between two reads if no key is usable, so that no token can be checked."""
TIMEOUT = 3.0
"""The longest time that a request waits for the keys, in seconds."""
MAX_BYTES = 1 << 18
MIN_RSA_BITS = 2048
DISCOVERY = "/.well-known/openid-configuration"

_log = logging.getLogger(__name__)


class ProviderConfiguration(BaseModel):
    """The members of OpenID Connect Discovery that are used."""

    issuer: str
    jwks_uri: str


class KeyDocument(BaseModel):
    keys: list[dict[str, Any]] = Field(max_length=100)


@dataclass(slots=True)
class SigningKeys:
    """Reads the keys of a provider, and keeps them. `clock` returns seconds, and never goes back.

    `transport` sends the requests; by default over the network.
    """

    settings: JwtSettings
    clock: Callable[[], float] = time.monotonic
    transport: httpx2.AsyncBaseTransport | None = None
    _keys: Mapping[str, PyJWK] = field(default_factory=dict)
    _read_at: float = -math.inf
    _tried_at: float = -math.inf
    _reading: asyncio.Task[None] | None = None

    async def find(self, id: str) -> PyJWK | None:
        """The key with the id, or the only key if the id is empty. None if the provider has no such key.

        Raises UnavailableError if no keys could be read in the last `USABLE_SECONDS`.
        """
        if self._age > FRESH_SECONDS or self._select(id) is None:
            await self._read_again()
        if self._age > USABLE_SECONDS:
            raise UnavailableError("the keys of the OpenID provider cannot be read")
        return self._select(id)

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            with suppress(asyncio.CancelledError):
                await self._reading

    @property
    def _age(self) -> float:
        return self.clock() - self._read_at

    def _select(self, id: str) -> PyJWK | None:
        if not id and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(id)

    async def _read_again(self) -> None:
        """Waits for a read that all requests share. It continues if the client of one of them disconnects."""
        if self._reading is None or self._reading.done():
            pause = PAUSE if self._age <= USABLE_SECONDS else PAUSE_WITHOUT_KEYS
            if self.clock() - self._tried_at < pause:
                return
            self._tried_at = self.clock()
            self._reading = asyncio.create_task(self._read())
        await asyncio.shield(self._reading)

    async def _read(self) -> None:
        """The keys stay as they are if the provider cannot be reached, or has no usable ones."""
        try:
            async with asyncio.timeout(TIMEOUT), httpx2.AsyncClient(transport=self.transport) as http:
                document = KeyDocument.model_validate_json(await _get(http, await self._find_url(http)))
            keys = parse_keys(document, self.settings.algorithms)
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, TimeoutError) as error:
            reason = first_line(error) or describe_error(error)
            _log.warning("cannot read the keys of the OpenID provider %s: %s", self.settings.issuer, reason)
        else:
            if self._age > FRESH_SECONDS:  # a regular read delays none for an unknown key
                self._tried_at = -math.inf
            self._keys, self._read_at = keys, self.clock()

    async def _find_url(self, http: httpx2.AsyncClient) -> str:
        """Raises ValueError if the provider calls itself by another issuer, or names a URL that is not secure."""
        if self.settings.jwks_url:
            return self.settings.jwks_url
        content = await _get(http, self.settings.issuer.rstrip("/") + DISCOVERY)
        provider = ProviderConfiguration.model_validate_json(content)
        if provider.issuer != self.settings.issuer:
            raise ValueError(f"its issuer must be {self.settings.issuer}, got {provider.issuer:.200}")
        return check_secure_url(provider.jwks_uri)


async def _get(http: httpx2.AsyncClient, url: str) -> bytes:
    """The body of the response. Raises ValueError for another status than 200, and for a body above `MAX_BYTES`."""
    content = b""
    async with http.stream("GET", url, headers={"Accept": "application/json"}) as response:
        if response.status_code != httpx2.codes.OK:
            raise ValueError(f"{url} must respond with status 200, got {response.status_code}")
        async for part in response.aiter_bytes():
            content += part
            if len(content) > MAX_BYTES:
                raise ValueError(f"the response of {url} must have at most {MAX_BYTES} bytes")
    return content


def parse_keys(document: KeyDocument, algorithms: Collection[str]) -> Mapping[str, PyJWK]:
    """The public signature keys by id, without those for other algorithms. Raises ValueError if there are none.

    Each key has one algorithm: its member `alg`, or the usual one of its type. A symmetric key is never used, because
    everybody can read the document.
    """
    keys = {}
    for member in document.keys:
        if member.get("use", "sig") != "sig" or member.get("alg") not in (None, *algorithms) or "d" in member:
            continue
        with suppress(PyJWTError):  # a type of key that PyJWT does not know
            key = PyJWK(member)
            if key.algorithm_name in algorithms and not _is_short(key):
                keys[str(member.get("kid", ""))] = key
    if not keys:
        raise ValueError(f"it has no key for {', '.join(algorithms)}")
    return keys


def _is_short(key: PyJWK) -> bool:
    return isinstance(key.key, RSAPublicKey) and key.key.key_size < MIN_RSA_BITS
