"""Whatever a client sends, what it gets is what `/openapi.json` says: no 500, no status and no body of another kind.

For longer, beside `rag serve`: the command below with `-n 500`, and without `--generation-deterministic`.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from example_counts import scale_examples
from fakes.serving import serve_graph
from trees import hashing_settings, ingest, write

from rag_core.storage.postgres import Postgres
from serve.services import open_shared_resources

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

FILES = {
    "keys.md": "# Keys\n\nSigning keys are replaced every 45 days. The harbour master keeps a copy.",
    "locks.md": "# Locks\n\nThe sea lock opens two hours before high water. Boats wait at the pontoon.",
    "empty.md": "",
}
OPTIONS = (
    *("--phases", "examples,coverage,fuzzing", "--generation-deterministic", "--no-color"),
    # No schema tells which cursor was given out, or which legs a profile has: well-formed bodies may be refused.
    *("--exclude-checks", "positive_data_acceptance"),
    *("--exclude-path-regex", "/events$"),  # as long as the job, for which nobody works here
)
CONFIGURATION = """
[parameters]
"header.Prefer" = "respond-async"  # nobody ingests here what could be waited for

[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", 504]  # who gives a search one millisecond may be told that it was too little
[checks.negative_data_rejection]
expected-statuses = [207, "4xx"]  # of several documents those that are valid are taken
"""
SCHEMATHESIS = [sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()"]


def test_every_answer_is_one_that_the_schema_tells_of(store: Postgres, tmp_path: Path) -> None:
    settings = hashing_settings(f"store.url={store.dsn}")
    ingest(store, write(tmp_path / "files", FILES), settings=settings)
    with serve_graph(open_shared_resources(settings).build_services(settings)) as address:
        (tmp_path / "schemathesis.toml").write_text(CONFIGURATION)
        command = [*SCHEMATHESIS, "run", f"{address}/openapi.json", *OPTIONS, "-n", str(scale_examples(15))]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
