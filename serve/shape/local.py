"""Runs Ray Serve on this machine."""

import logging
import os
import socket
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, NoReturn, TypeAlias

import httpx2

from jobs.ray_connection import RAY_ENVIRONMENT, is_start_failure, keep_sigterm_handler
from jobs.ray_runner import redirect_native_errors
from rag_core.config import AuthSettings
from rag_core.errors import ClusterError, StoppedError
from serve.file_watch import POLL_SECONDS as POLL_FILE_SECONDS
from serve.shape.draining import is_sigterm_deferred
from serve.shape.exposure import OPEN, check_host
from serve.shape.listener import BACKLOG, lend_listener

if TYPE_CHECKING:
    from ray.serve import Application
    from ray.serve.schema import ApplicationStatusOverview, ServeDeploySchema

ROUTE, NAME = "/", "rag"

READY_TIMEOUT = 900.0
"""Seconds in which all replicas must become ready. A large model takes minutes to load."""

WATCH_SECONDS = 5.0
"""Seconds between two checks of a gateway that is ready."""

MIN_PATIENCE = 60.0
"""Seconds that a gateway has at least to respond again after its replica died."""

POLL_SECONDS = 0.3
"""Seconds between two requests for the status. Each costs Serve's controller about 20 ms."""

METRICS_OFFSET = 1000
"""The metrics port minus the gateway's port, so that the gateways of one machine have different ones."""

MAX_PORT = 65_535
LOOPBACK = "127.0.0.1"

# Serve's throughput mode requires HAProxy, and with HAProxy the replicas listen on every network interface.
PROXY_ENVIRONMENT = {
    # then Ray opens all its ports on loopback, including that of the metrics; a second node could not join
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "serve.http.request_ids:serve_middlewares",
    "RAY_SERVE_ENABLE_HA_PROXY": "0",
    "RAY_SERVE_ENABLE_DIRECT_INGRESS": "0",
    "RAY_SERVE_THROUGHPUT_OPTIMIZED": "0",
}

DIRECT_INGRESS = {
    **PROXY_ENVIRONMENT,
    "RAY_SERVE_ENABLE_DIRECT_INGRESS": "1",
    "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "0.1",
    "RAY_SERVE_PROXY_MIN_DRAINING_PERIOD_S": "0.1",
    "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
    "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "0",
}
"""The environment variables for a gateway that accepts the connections itself.

Without Serve's proxy a request takes a tenth of Serve's CPU time. The gateway's code and Serve's code run in one event
loop.
"""

ProgressListener: TypeAlias = Callable[[str], None]
"""Receives a line such as `waiting for Gateway` whenever the line changes."""


def ignore_progress(_line: str) -> None:
    pass


@contextmanager
def serve_locally(
    application: "Callable[[], Application]",
    host: str,
    port: int,
    on_progress: ProgressListener = ignore_progress,
    metrics_port: int = 0,
    auth: AuthSettings = OPEN,
) -> Iterator[str]:
    """Serves an application during the block, and yields its URL when it is ready. The gateway has one replica.

    `metrics_port` is chosen by `choose_metrics_port` if it is 0. Raises ConfigError if other machines can reach the
    host and callers are not authenticated. Raises ClusterError if a port is in use, or if Ray or the application cannot
    be started.
    """
    check_host(host, auth)
    with (
        _listen(host, port) as listener,
        lend_listener(listener) as lent,
        _start_ray(DIRECT_INGRESS | lent, metrics_port or choose_metrics_port(port), on_progress),
    ):
        from ray import serve

        quiet = {"log_level": "WARNING", "enable_access_log": False}
        target = serve.RunTarget(application(), name=NAME, route_prefix=ROUTE, logging_config=quiet)
        with _translate_ray_errors():
            # this port is only a label: the replica accepts the connections of `listener`
            serve.start(http_options={"host": LOOPBACK, "port": _free_port(LOOPBACK)}, logging_config=quiet)
            serve.run_many([target], wait_for_applications_running=False)
        yield wait_until_ready(host, port, on_progress)


@contextmanager
def serve_from_config(
    config: "ServeDeploySchema",
    host: str = "",
    port: int = 0,
    on_progress: ProgressListener = ignore_progress,
    metrics_port: int = 0,
    auth: AuthSettings = OPEN,
) -> Iterator[str]:
    """Serves the applications of a Serve config during the block, and yields their URL when they are ready.

    `host` and `port` override the config. Raises the errors of `serve_locally`.
    """
    options = {
        **config.http_options.model_dump(),
        **({"host": host} if host else {}),
        **({"port": port} if port else {}),
    }
    check_host(options["host"], auth)
    _listen(options["host"], options["port"]).close()  # the port is free
    with _start_ray(PROXY_ENVIRONMENT, metrics_port or choose_metrics_port(options["port"]), on_progress):
        from ray import serve

        with _translate_ray_errors():
            serve.start(
                proxy_location=config.proxy_location,
                http_options=options,
                logging_config=config.logging_config,
                tracing_config=config.tracing_config,
                controller_options=config.controller_options,
            )
        deploy(config)
        yield wait_until_ready(options["host"], options["port"], on_progress)


def deploy(config: "ServeDeploySchema") -> None:
    """Changes the running Serve of this process to a config, as `serve deploy` does. Unchanged parts keep running.

    Raises ClusterError if Serve rejects the config.
    """
    from ray.serve.context import _get_global_client

    with _translate_ray_errors():
        if client := _get_global_client():
            client.deploy_apps(config)


def set_environment(ingress: dict[str, str] = PROXY_ENVIRONMENT) -> None:
    """Sets the environment variables of Ray and Ray Serve.

    Call it before Ray Serve is imported, which reads them at that time. Its processes read them when Ray starts.
    """
    os.environ.update({key: value for key, value in RAY_ENVIRONMENT.items() if key not in os.environ} | ingress)


@contextmanager
def _start_ray(ingress: dict[str, str], metrics_port: int, on_progress: ProgressListener) -> Iterator[None]:
    """Starts Ray for the block. Serve and Ray are shut down when it ends."""
    hint = "; telemetry.metrics_port sets another port for the metrics"
    _listen(LOOPBACK, metrics_port, hint).close()  # the port is free
    set_environment(ingress)
    with redirect_native_errors(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own warnings
        import ray
        from ray import serve

        try:
            with _translate_ray_errors(), keep_sigterm_handler():
                ray.init(
                    address="local",
                    include_dashboard=False,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                    _metrics_export_port=metrics_port,
                )
            on_progress(f"metrics for Prometheus at http://{LOOPBACK}:{metrics_port}/metrics")
            yield
        finally:
            # else, after a failed start, Serve would start another Ray, or shut down the Serve of another one
            if ray.is_initialized():
                with redirect_stdout(sys.stderr):  # Ray prints a line about the end of the controller
                    serve.shutdown()  # type: ignore[no-untyped-call]
                    ray.shutdown()


@contextmanager
def _translate_ray_errors() -> Iterator[None]:
    from ray.exceptions import RayError

    try:
        yield
    except Exception as error:
        if not (is_start_failure(error) or isinstance(error, RayError)):
            raise
        raise ClusterError(f"cannot start the gateway: {error}") from error


def wait_until_ready(host: str, port: int, on_progress: ProgressListener) -> str:
    """Waits until every deployment runs and the URL responds. Returns the URL.

    Raises ClusterError after `READY_TIMEOUT`, or with Serve's own message if a deployment cannot be started. Raises
    StoppedError if SIGTERM arrived while the gateway started.
    """
    address = f"[{host}]" if ":" in host else host
    url, deadline, reported = f"http://{address}:{port}", time.monotonic() + READY_TIMEOUT, ""
    while pending := _describe_pending(url):
        if pending != reported:
            on_progress(f"waiting for {pending}")
            reported = pending
        if is_sigterm_deferred():
            raise StoppedError("stopped by SIGTERM before the gateway was ready")
        if time.monotonic() > deadline:
            raise ClusterError(f"not ready after {READY_TIMEOUT:g} s: waiting for {pending}")
        time.sleep(POLL_SECONDS)
    return url


def watch(url: str, start_seconds: float, poll_file: Callable[[], None]) -> NoReturn:
    """Checks the gateway until interrupted, and calls `poll_file` every second. Serve replaces a replica that dies.

    Raises ClusterError if there is no response for three times the `start_seconds` that the gateway needed to start.
    """
    patience, responded = max(MIN_PATIENCE, 3 * start_seconds), time.monotonic()
    while True:
        for _ in range(round(WATCH_SECONDS / POLL_FILE_SECONDS)):
            time.sleep(POLL_FILE_SECONDS)
            poll_file()
        if _is_responding(url):
            responded = time.monotonic()
        elif time.monotonic() > responded + patience:
            raise ClusterError(
                f"the gateway at {url} has not responded for {patience:.0f} s, and Serve did not replace it"
            )


def _describe_pending(url: str) -> str:
    """Describes what is not ready yet; empty when everything is ready."""
    from ray import serve

    applications = serve.status().applications
    for name, application in applications.items():
        if application.status == "DEPLOY_FAILED":  # UNHEALTHY passes: Serve replaces a replica that crashed
            raise ClusterError(f"cannot start the application {name}: {_failure_reason(application)}")
    deployments = [item for application in applications.values() for item in application.deployments.items()]
    pending = []
    for name, deployment in deployments:
        if deployment.status != "HEALTHY":
            counts = deployment.replica_states
            running = sum(count for state, count in counts.items() if state == "RUNNING")
            pending.append(f"{name} ({running} of {max(sum(counts.values()), 1)} replicas)")
    if pending:
        return ", ".join(pending)
    if not applications or any(application.status != "RUNNING" for application in applications.values()):
        return "Ray Serve"
    return "" if _is_responding(url) else f"a response from {url}"


def _failure_reason(application: "ApplicationStatusOverview") -> str:
    """The first and last line of each of Serve's messages: a summary, and the end of a traceback."""
    messages = [application.message, *(deployment.message for deployment in application.deployments.values())]
    lines = [message.strip().splitlines() for message in messages if message and message.strip()]
    return "; ".join(dict.fromkeys(line for text in lines for line in (text[0], text[-1])))


def _is_responding(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/-/healthz", timeout=1.0).is_success
    except httpx2.HTTPError:
        return False


def choose_metrics_port(port: int) -> int:
    """The port of the metrics of a gateway with this port."""
    return port + METRICS_OFFSET if port + METRICS_OFFSET <= MAX_PORT else port - METRICS_OFFSET


def _listen(host: str, port: int, hint: str = "") -> socket.socket:
    """Raises ClusterError if the port is in use. Connections of an earlier gateway can still occupy it."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise ClusterError(f"cannot use port {port} of {host}: {error.strerror}{hint}") from error


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port
