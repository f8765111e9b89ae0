"""The rule for the address of a gateway: without authentication it listens on loopback only."""

import ipaddress
import socket

from rag_core.config import AuthSettings
from rag_core.errors import ConfigError

OPEN = AuthSettings(mode="none")
"""The settings of a gateway that trusts every caller."""


def is_loopback(host: str) -> bool:
    """False if other machines can reach a server that listens on the host. Raises ConfigError for an unknown host."""
    try:
        addresses = {entry[4][0] for entry in socket.getaddrinfo(host, None)}
    except OSError as error:
        raise ConfigError(f"host must be an address or a name of this machine, got {host!r}: {error}") from error
    return all(ipaddress.ip_address(address).is_loopback for address in addresses)


def check_host(host: str, auth: AuthSettings) -> None:
    """Raises ConfigError if other machines can reach the host and callers are not authenticated."""
    if auth.mode == "none" and not is_loopback(host):
        raise ConfigError(
            "the gateway does not authenticate callers (auth.mode none), so it listens on loopback only: set "
            f"auth.mode to keys, or host must be 127.0.0.1, got {host}"
        )


def check_running_serve(auth: AuthSettings) -> None:
    """Raises ConfigError if the Serve of this cluster listens on an address that `check_host` refuses.

    `serve deploy` and KubeRay do not run `rag serve`, which checks the address before it starts Serve.
    """
    import ray
    from ray.serve.context import _get_global_client

    client = _get_global_client(raise_if_no_controller_running=False) if ray.is_initialized() else None
    if client:
        check_host(client.http_config.host or "0.0.0.0", auth)  # noqa: S104 - Serve's own default
