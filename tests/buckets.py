"""S3 in memory, as moto serves it."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from s3fs import S3FileSystem
from waiting import wait_until

from benchmarks.free_port import find_free_port


@contextmanager
def run_s3(log: Path) -> Iterator[str]:
    """Yields the url of moto's server: S3 in memory.

    fsspec keeps one file system per process for equal arguments, and the endpoint of the environment is not among them.
    """
    S3FileSystem.clear_instance_cache()
    port = find_free_port()
    command = [sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", str(port)]
    with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output) as server:
        try:
            wait_until(lambda: "Running on" in log.read_text() or server.poll() is not None)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
