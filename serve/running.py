"""A gateway on a Ray Serve of this machine, from its start to its end."""

import ipaddress
import logging
import os
import socket
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout

from jobs.runner import ENVIRONMENT, native_errors_logged
from rag_core.config import Settings
from rag_core.errors import ClusterError, ConfigError

ROUTE = "/"


@contextmanager
def served(settings: Settings, host: str, port: int) -> Iterator[str]:
    """The URL of a gateway that answers, until the block ends.

    ConfigError for a host that others can reach, because nobody has to say who they are; ClusterError if the port is
    taken, or if Ray or the gateway cannot be started.
    """
    _check_loopback(host)
    _check_free(host, port)
    os.environ.update({key: value for key, value in ENVIRONMENT.items() if key not in os.environ})
    with native_errors_logged(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Ray's own making
        import ray
        from ray import serve

        try:
            _start(settings, host, port)
            yield f"http://{host}:{port}"
        finally:
            with redirect_stdout(sys.stderr):  # Ray tells there of the controller's end
                serve.shutdown()  # type: ignore[no-untyped-call]
                ray.shutdown()


def _start(settings: Settings, host: str, port: int) -> None:
    import ray
    from ray import serve

    from serve.app import local_app

    quiet = {"log_level": "WARNING", "enable_access_log": False}
    try:
        ray.init(address="local", include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        serve.start(http_options={"host": host, "port": port}, logging_config=quiet)
        serve.run(local_app(settings), route_prefix=ROUTE, logging_config=quiet)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        raise ClusterError(f"the gateway cannot be started: {error}") from error


def _check_loopback(host: str) -> None:
    addresses = {entry[4][0] for entry in socket.getaddrinfo(host, None)}
    if not all(ipaddress.ip_address(address).is_loopback for address in addresses):
        raise ConfigError(f"without keys the gateway listens on loopback only: host must be 127.0.0.1, got {host}")


def _check_free(host: str, port: int) -> None:
    with socket.socket() as probe:
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ClusterError(f"port {port} of {host} cannot be used: {error.strerror}") from error
