"""A gateway that trusts every caller listens on loopback only."""

import pytest

from rag_core.config import AuthSettings
from rag_core.errors import ConfigError
from serve.shape.exposure import OPEN, check_host, is_loopback

KEYS = AuthSettings(mode="keys")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_loopback_needs_no_authentication(host: str) -> None:
    assert is_loopback(host)
    check_host(host, OPEN)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3"])  # noqa: S104
def test_other_addresses_need_it(host: str) -> None:
    check_host(host, KEYS)
    with pytest.raises(ConfigError, match=f"set auth.mode to keys, or host must be 127.0.0.1, got {host}$"):
        check_host(host, OPEN)


def test_a_host_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConfigError, match="host must be an address or a name of this machine, got 'no such host'"):
        is_loopback("no such host")
