"""The connection of this process to Ray: a local instance, or the cluster that RAY_ADDRESS names."""

import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rag_core.errors import ClusterError, RagError

RESERVATION_RATIO = 0.1
"""The share of the CPUs that Ray reserves for its operators, in equal parts.

At 0.5, the default, reading reserves the CPUs that publishing needs. With two CPUs, nothing is then published before
everything has been read.
"""
MAX_OUTPUT_BLOCK_BYTES = 1 << 20
"""The size at which Ray cuts the output of a stage into blocks, between rows.

It is small enough that the parts of a very large document spread over the actors. The drafts of an ordinary block are
hardly larger.
"""
RAY_ENVIRONMENT = {
    "RAY_worker_niceness": "0",  # at 15, the default, workers lose against every other process
    "RAY_idle_worker_killing_time_threshold_ms": "600000",  # else worker starts take a fifth of the time
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_task_oom_retries": "2",
}
SYSTEM_CONFIG = {"preload_python_modules": ["ray.data"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """The share of the cluster that a job can use; None means all. Each embedding actor gets one of the `gpus`."""

    cpus: int | None = None
    gpus: int = 0
    actors: int | None = None


UNLIMITED = Resources()


def start_ray(resources: Resources = UNLIMITED, runtime_env: Mapping[str, Any] | None = None) -> None:
    """Connects to the cluster that RAY_ADDRESS names, or starts a local one. Does so only once per process.

    Ray merges `runtime_env` with that of a submitted job.
    """
    os.environ.update({key: value for key, value in RAY_ENVIRONMENT.items() if key not in os.environ})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own code causes the warnings
        import ray
        import ray.data

        if not ray.is_initialized():
            # without "local", Ray would join any cluster that was started on this machine
            local: dict[str, Any] = {"address": "local", "include_dashboard": False, "_system_config": SYSTEM_CONFIG}
            local |= {"num_cpus": resources.cpus} if resources.cpus else {}
            options = {} if "RAY_ADDRESS" in os.environ else local
            options |= {"runtime_env": dict(runtime_env)} if runtime_env else {}
            try:
                with keep_sigterm_handler():
                    ray.init(log_to_driver=False, logging_level=logging.ERROR, **options)
            except Exception as error:
                if not is_start_failure(error):
                    raise
                raise ClusterError(_explain_failure(error)) from error
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    logging.getLogger("ray.data.exceptions").addFilter(is_unnamed_failure)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.execution_no_progress_timeout_s = 600
    context.target_max_block_size = MAX_OUTPUT_BLOCK_BYTES
    context.raise_original_map_exception = True
    limit = resources.cpus or float("inf")
    context.op_resource_reservation_ratio = RESERVATION_RATIO
    context.execution_options.resource_limits = ray.data.ExecutionResources.for_limits(cpu=limit)


def is_unnamed_failure(_record: logging.LogRecord) -> bool:
    """False while an error of this program is raised through Ray Data, which prints a traceback of it.

    Such an error is a requested stop, for example. The command reports it.
    """
    return not isinstance(sys.exception(), RagError)


def is_start_failure(error: Exception) -> bool:
    """True if Ray raises such errors when it cannot start or connect. A bare one means that it started too slowly."""
    return type(error) is Exception or isinstance(error, (ConnectionError, RuntimeError, ValueError, TimeoutError))


@contextmanager
def keep_sigterm_handler() -> Iterator[None]:
    """Restores the program's own handler of SIGTERM, which Ray replaces by one that aborts the process."""
    handler = signal.getsignal(signal.SIGTERM)
    yield
    if callable(handler) and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)


def _explain_failure(error: Exception) -> str:
    if "RAY_ADDRESS" not in os.environ:
        return f"Ray cannot be started: {error}"
    if "ersion mismatch" in str(error):
        versions = " ".join(str(error).split())
        return f"this process cannot join the cluster: {versions}; install the versions of the cluster"
    hint = "check RAY_ADDRESS, and RAY_AUTH_MODE and RAY_AUTH_TOKEN if the cluster has a token"
    return f"Ray cannot be reached: {error}; {hint}"
