"""The rule for connections to Postgres on other machines: TLS, or a DSN that says otherwise."""

from collections.abc import Mapping

from psycopg.conninfo import conninfo_to_dict

from rag_core.config import is_loopback
from rag_core.errors import ConfigError

STATED_MODES = ("require", "verify-ca", "verify-full", "disable")
"""The values of sslmode that settle whether a connection is encrypted. With the others, the server decides."""


def check_transport(dsn: str, environment: Mapping[str, str]) -> None:
    """Raises ConfigError if the server is on another machine and libpq could send data unencrypted without being told.

    `environment` has libpq's variables, such as PGHOST.
    """
    parameters = conninfo_to_dict(dsn)
    host = _find_host(parameters, environment)
    mode = str(parameters.get("sslmode") or environment.get("PGSSLMODE") or "prefer")
    if mode not in STATED_MODES and not all(map(_is_local, host.split(","))):
        raise ConfigError(
            f"store.url: the connection to {host} could be unencrypted, because sslmode is {mode}: add "
            "sslmode=verify-full (or require) to the DSN, or sslmode=disable if the network between is trusted"
        )


def _find_host(parameters: Mapping[str, object], environment: Mapping[str, str]) -> str:
    """The host that libpq connects to; empty for its default, a unix socket."""
    service = parameters.get("service") or environment.get("PGSERVICE")
    if address := parameters.get("hostaddr"):
        return str(address)
    if service:
        return f"service {service}"  # its file can name any address, even next to a host
    return str(environment.get("PGHOSTADDR") or parameters.get("host") or environment.get("PGHOST") or "")


def _is_local(host: str) -> bool:
    return not host or host.startswith(("/", "@")) or is_loopback(host)
