"""A real Prometheus, and its HTTP API."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx2
from debian import find_program
from waiting import wait_until

from benchmarks.free_port import find_free_port


@dataclass(frozen=True)
class Prometheus:
    url: str

    def get(self, path: str, **parameters: str) -> Any:
        """The data of a request to the API. Raises AssertionError if it is refused, as an invalid expression is."""
        response = httpx2.get(f"{self.url}/api/v1/{path}", params=parameters, timeout=30).json()
        assert response["status"] == "success", response
        return response["data"]

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """The labels and values of the series of an expression now."""
        series = self.get("query", query=expression)["result"]
        return [(one["metric"], float(one["value"][1])) for one in series]

    def query_range(self, expression: str, seconds: float, step: float) -> list[tuple[dict[str, str], list[float]]]:
        """The series of an expression over the last seconds."""
        now = time.time()
        series = self.get("query_range", query=expression, start=str(now - seconds), end=str(now), step=str(step))
        return [(one["metric"], [float(value) for _, value in one["values"]]) for one in series["result"]]


@contextmanager
def run_prometheus(configuration: Path, folder: Path) -> Iterator[Prometheus]:
    """Runs Prometheus during the block, with its data in the folder."""
    address = f"127.0.0.1:{find_free_port()}"
    command = [
        *(str(find_program("prometheus")), f"--config.file={configuration}", f"--storage.tsdb.path={folder / 'data'}"),
        *(f"--web.listen-address={address}", "--log.level=warn"),
    ]
    with (folder / "prometheus.log").open("w") as log, subprocess.Popen(command, stderr=log, stdout=log) as process:
        try:
            wait_until(lambda: _is_ready(f"http://{address}") or process.poll() is not None)
            assert process.poll() is None, (folder / "prometheus.log").read_text()
            yield Prometheus(f"http://{address}")
        finally:
            process.terminate()


def _is_ready(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/-/ready", timeout=5).status_code == 200
    except httpx2.TransportError:
        return False


@contextmanager
def publish_files(folder: Path) -> Iterator[str]:
    """Publishes the folder's *.prom files, as the textfile collector of the node exporter does. Yields the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = "".join(path.read_text() for path in sorted(folder.glob("*.prom"))).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
