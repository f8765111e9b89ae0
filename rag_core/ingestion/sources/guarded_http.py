"""An HTTP client for locations that requests name: it checks each redirect, and each address that it connects to.

Every connection is made to the address that was checked, so a name that resolves to another address the next time
(DNS rebinding) gains nothing. Host and SNI remain the name.
"""

import logging
import socket
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from rag_core.errors import LocationError
from rag_core.ingestion.sources.addresses import is_allowed_address
from rag_core.ingestion.sources.location_rules import LocationRules

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GuardedClient:
    """Opens the sessions of fsspec's HTTP file system. The representation is part of the key of fsspec's cache."""

    rules: LocationRules

    async def __call__(self, **options: Any) -> aiohttp.ClientSession:
        # one attempt after the other: a race of attempts would collect the errors of refused addresses
        connector = aiohttp.TCPConnector(
            resolver=_CheckedResolver(self.rules), socket_factory=self._open_socket, happy_eyeballs_delay=None
        )
        # proxies of the environment would resolve the name again
        return aiohttp.ClientSession(connector=connector, middlewares=(self._check_hop,), trust_env=False, **options)

    async def _check_hop(
        self, request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Checks the URL of a request, including each one that a redirect causes."""
        try:
            self.rules.check(str(request.url))
        except LocationError as error:
            _log.warning("refused a request to %s: %s", request.url, error)
            raise LocationError("the server redirects or links to a location that requests cannot name") from None
        return await send(request)

    def _open_socket(self, address: aiohttp.AddrInfoType) -> socket.socket:
        """Opens the socket for a connection. A literal address in a URL arrives here without the resolver."""
        family, kind, protocol, _, target = address
        check_address(str(target[0]), self.rules)
        return socket.socket(family, kind, protocol)


class _CheckedResolver(AbstractResolver):
    """The system's resolver. It refuses a name if one of its addresses is refused."""

    def __init__(self, rules: LocationRules) -> None:
        self._rules, self._resolver = rules, aiohttp.ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        results = await self._resolver.resolve(host, port, family)
        for result in results:
            check_address(result["host"], self._rules)
        return results

    async def close(self) -> None:
        await self._resolver.close()


def check_address(address: str, rules: LocationRules) -> None:
    """Raises LocationError without the address, which would tell a caller about the network."""
    if not is_allowed_address(address, rules.private_networks):
        _log.warning("refused a connection to %s", address)
        raise LocationError("the host must be at a public address; ingestion.private_networks allows private ones")
