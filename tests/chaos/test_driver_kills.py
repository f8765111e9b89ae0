"""A postmaster that is killed while the driver plans or finishes: the same command completes, without a second one."""

import subprocess
import sys
from pathlib import Path

import pytest
from hosts import SETTINGS, Host
from trees import StoredTree, assert_identical, read_tree, violations

from rag_core.storage.ledger import Ledger
from rag_core.types import DEFAULT_TENANT

pytestmark = [pytest.mark.chaos, pytest.mark.postgres, pytest.mark.timeout(300)]

DRIVER = Path(__file__).with_name("suicidal_driver.py")
KILLS = [
    *(("planning", number) for number in (1, 2, 4, 6, 9, 12, 15, 18, 20, 22, 24)),
    *(("finishing", number) for number in (1, 2, 3, 4, 5, 7, 9, 11, 13, 14, 16)),
]


@pytest.mark.parametrize(("phase", "number"), KILLS)
def test_a_server_that_is_killed_while_the_driver_plans_or_finishes_is_waited_for(
    host: Host, undisturbed: StoredTree, phase: str, number: int
) -> None:
    command = [sys.executable, str(DRIVER), phase, str(number), str(host.home / "postgres" / "postmaster.pid")]
    command += ["ingest", str(host.folder), "--runner", "inline", "--yes", *SETTINGS]
    process = subprocess.run(command, env=host.environment, capture_output=True, text=True, timeout=200, check=False)
    assert "killed" in process.stdout.splitlines(), "the step has fewer statements"
    assert (process.returncode, process.stderr.count("error")) == (0, 0), process.stderr
    assert violations(host.store) == []
    assert_identical(read_tree(host.store), undisturbed)
    with host.store.connect() as connection:
        ledger = Ledger(connection, DEFAULT_TENANT)
        assert [(job["status"], job["documents"]) for job in ledger.jobs()] == [
            ("completed", len(undisturbed.documents))
        ]
