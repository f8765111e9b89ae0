"""`rag serve` as a process of a benchmark or a test, which can be terminated and started again on the same port."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.free_port import find_free_port

START_ATTEMPTS = 6
"""The number of times that a gateway is started. Ray itself gives up if it is not there after 30 seconds."""
STOP_TIMEOUT = 120.0
"""Seconds in which a terminated gateway ends."""


@dataclass(slots=True)
class GatewayProcess:
    """`options` are those of `rag serve`. The log of the process is in the folder."""

    folder: Path
    store: str
    options: Sequence[str]
    port: int = field(default_factory=find_free_port)
    _process: "subprocess.Popen[str] | None" = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        return self.folder / f"gateway-{self.port}.log"

    def start(self) -> float:
        """Starts the gateway and waits until it is ready. Returns the seconds that this took."""
        began = time.monotonic()
        if not any(self._try_start() for _ in range(START_ATTEMPTS)):
            raise SystemExit(f"the gateway did not start: {self.log.read_text()}")
        return time.monotonic() - began

    def _try_start(self) -> bool:
        command = [sys.executable, "-m", "rag_cli", "serve", "--port", str(self.port), "--json", *self.options]
        environment = {**os.environ, "RAG_STORE__URL": self.store, "RAG_HOME": str(self.folder / "home")}
        with self.log.open("a") as log:
            self._process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
        line = self._process.stdout.readline() if self._process.stdout else ""
        if "url" in json.loads(line or "{}"):  # it prints its URL when it is ready, or an error
            return True
        self.terminate()
        return False

    def terminate(self) -> int:
        """Ends the gateway by SIGTERM. Returns its exit code."""
        if self._process is None:
            return 0
        process, self._process = self._process, None
        with process:
            process.send_signal(signal.SIGTERM)
            return process.wait(STOP_TIMEOUT)
