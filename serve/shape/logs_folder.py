"""The folder of Ray Serve's log files on this machine."""

from pathlib import Path


def serve_logs_folder() -> Path:
    """The folder in the logs of the current Ray session. Ray must be initialized."""
    from ray.serve._private.logging_utils import get_serve_logs_dir

    return Path(get_serve_logs_dir())
