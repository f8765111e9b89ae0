"""A Ray Serve of this machine, from its start to its end."""

import ipaddress
import logging
import os
import socket
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, TypeAlias

import httpx2

from jobs.runner import ENVIRONMENT, native_errors_logged
from rag_core.errors import ClusterError, ConfigError

if TYPE_CHECKING:
    from ray.serve import Application
    from ray.serve.schema import ApplicationStatusOverview, ServeDeploySchema

ROUTE, NAME = "/", "rag"

PATIENCE = 900.0
"""Seconds until all replicas must be there: a large model takes minutes to load."""

PAUSE = 0.3
"""Seconds between looks at the status, each of which costs the controller some 20 ms."""

# Behind HAProxy, which throughput mode needs, replicas listen on every interface.
BY_PROXY = {
    "RAY_SERVE_ENABLE_HA_PROXY": "0",
    "RAY_SERVE_ENABLE_DIRECT_INGRESS": "0",
    "RAY_SERVE_THROUGHPUT_OPTIMIZED": "0",
}

Tell: TypeAlias = Callable[[str], None]
"""Is told what is waited for, whenever that changes."""


def nobody(_text: str) -> None:
    pass


@contextmanager
def serve_locally(application: "Callable[[], Application]", host: str, port: int, tell: Tell = nobody) -> Iterator[str]:
    """Yields the URL of an application that answers, until the block ends. Its ingress has one replica.

    ConfigError for a host that others can reach, because callers are not authenticated; ClusterError if the port is
    taken, or if Ray or the application cannot be started.
    """
    with _ray(host, port, by_itself(port)):
        from ray import serve

        quiet = {"log_level": "WARNING", "enable_access_log": False}
        target = serve.RunTarget(application(), name=NAME, route_prefix=ROUTE, logging_config=quiet)
        with _translated():
            serve.start(http_options={"host": host, "port": _free_port(host)}, logging_config=quiet)
            serve.run_many([target], wait_for_applications_running=False)
        yield ready(host, port, tell)


@contextmanager
def serve_shape(shape: "ServeDeploySchema", host: str = "", port: int = 0, tell: Tell = nobody) -> Iterator[str]:
    """Yields the URL of what a Serve config describes; `host` and `port` override the config.

    Raises what `serve_locally` raises.
    """
    options = {
        **shape.http_options.model_dump(),
        **({"host": host} if host else {}),
        **({"port": port} if port else {}),
    }
    with _ray(options["host"], options["port"], BY_PROXY):
        from ray import serve

        with _translated():
            serve.start(
                proxy_location=shape.proxy_location,
                http_options=options,
                logging_config=shape.logging_config,
                tracing_config=shape.tracing_config,
                controller_options=shape.controller_options,
            )
        deploy(shape)
        yield ready(options["host"], options["port"], tell)


def deploy(shape: "ServeDeploySchema") -> None:
    """Brings the Serve of this process to a shape, as `serve deploy` does: what did not change goes on as it is.
    ClusterError if it does not take it."""
    from ray.serve.context import _get_global_client

    with _translated():
        if client := _get_global_client():
            client.deploy_apps(shape)


def by_itself(port: int) -> dict[str, str]:
    """For the one replica of a gateway that listens on the port, and on the host that Serve was started with, and runs
    its code in the same loop. Serve's proxy before it takes ten times the CPU of its own HTTP."""
    return {
        **BY_PROXY,
        "RAY_SERVE_ENABLE_DIRECT_INGRESS": "1",
        "RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT": str(port),
        "RAY_SERVE_DIRECT_INGRESS_MAX_HTTP_PORT": str(port + 1),  # which it never takes
        "RAY_SERVE_PORT_QUARANTINE_S": "0",  # a replica that was killed has the port of the next one
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "0.1",
        "RAY_SERVE_PROXY_MIN_DRAINING_PERIOD_S": "0.1",
        "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
        "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "0",
    }


def set_environment(ingress: dict[str, str] = BY_PROXY) -> None:
    """Before anything imports Ray Serve, which reads it then; the processes of Serve read it when Ray starts."""
    os.environ.update({key: value for key, value in ENVIRONMENT.items() if key not in os.environ} | ingress)


@contextmanager
def _ray(host: str, port: int, ingress: dict[str, str]) -> Iterator[None]:
    check_loopback(host)
    _check_free(host, port)
    set_environment(ingress)
    with native_errors_logged(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Ray's own making
        import ray
        from ray import serve

        try:
            with _translated():
                ray.init(address="local", include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
            yield
        finally:
            with redirect_stdout(sys.stderr):  # Ray tells there of the controller's end
                serve.shutdown()  # type: ignore[no-untyped-call]
                ray.shutdown()


@contextmanager
def _translated() -> Iterator[None]:
    from ray.exceptions import RayError

    try:
        yield
    except (RayError, ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        raise ClusterError(f"the gateway cannot be started: {error}") from error


def ready(host: str, port: int, tell: Tell) -> str:
    """Once every deployment runs, and what listens knows it. ClusterError with Serve's own words if one cannot."""
    url, until, told = f"http://{host}:{port}", time.monotonic() + PATIENCE, ""
    while missing := _missing(url):
        if missing != told:
            tell(f"waiting for {missing}")
            told = missing
        if time.monotonic() > until:
            raise ClusterError(f"not ready within {PATIENCE:g} s: {missing}")
        time.sleep(PAUSE)
    return url


def _missing(url: str) -> str:
    """What is waited for; empty once all is there."""
    from ray import serve

    applications = serve.status().applications
    for name, application in applications.items():
        if application.status in ("DEPLOY_FAILED", "UNHEALTHY"):
            raise ClusterError(f"the application {name} cannot be started: {_reason(application)}")
    if waiting := [line for each in applications.values() for line in _waiting(each)]:
        return ", ".join(waiting)
    if not applications or any(application.status != "RUNNING" for application in applications.values()):
        return "Ray Serve"
    return "" if _routed(url) else f"an answer from {url}"


def _waiting(application: "ApplicationStatusOverview") -> Iterator[str]:
    for name, deployment in application.deployments.items():
        states = deployment.replica_states
        running = sum(count for state, count in states.items() if state == "RUNNING")
        if deployment.status != "HEALTHY":
            yield f"{name} ({running} of {max(sum(states.values()), 1)} replicas)"


def _reason(application: "ApplicationStatusOverview") -> str:
    """The last line of each trace, which says what went wrong, after what Serve says of it."""
    said = [application.message, *(each.message for each in application.deployments.values() if each.message)]
    lines = [text.strip().splitlines() for text in said if text.strip()]
    return "; ".join(dict.fromkeys(line for text in lines for line in (text[0], text[-1])))


def _routed(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/-/healthz", timeout=1.0).is_success
    except httpx2.HTTPError:
        return False


def check_loopback(host: str) -> None:
    """ConfigError for a host that others can reach."""
    addresses = {entry[4][0] for entry in socket.getaddrinfo(host, None)}
    if not all(ipaddress.ip_address(address).is_loopback for address in addresses):
        raise ConfigError(f"without keys the gateway listens on loopback only: host must be 127.0.0.1, got {host}")


def _check_free(host: str, port: int) -> None:
    with socket.socket() as probe:
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ClusterError(f"port {port} of {host} cannot be used: {error.strerror}") from error


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port
