"""Whatever is killed, and whenever: the same command again leaves the store as an undisturbed run does.

Not part of the default run: `make chaos`. Every moment is drawn from a seed, so that a failure can be repeated.
"""

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress

import psutil
import pytest
from hosts import DOCUMENTS, Host, postmaster
from moments import wait_for
from trees import StoredTree, assert_identical, read_tree, violations

from rag_core.storage.postgres import Postgres

pytestmark = [pytest.mark.chaos, pytest.mark.postgres, pytest.mark.timeout(300)]


def driver(process: "subprocess.Popen[bytes]", host: Host) -> psutil.Process:
    return psutil.Process(process.pid)


def actor(process: "subprocess.Popen[bytes]", host: Host) -> psutil.Process:
    """Returns any of Ray's workers that has begun to work."""
    return _first_below(process, lambda command: command.startswith("ray::Map"))


def parser(process: "subprocess.Popen[bytes]", host: Host) -> psutil.Process:
    return _first_below(process, lambda command: "sandbox_child" in command)


def server(process: "subprocess.Popen[bytes]", host: Host) -> psutil.Process:
    return postmaster(host)


def _first_below(process: "subprocess.Popen[bytes]", wanted: Callable[[str], bool]) -> psutil.Process:
    """Waits for a descendant with such a command, and returns the first one."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        for child in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.Error):
                if wanted(" ".join(child.cmdline())):
                    return child
        time.sleep(0.01)
    pytest.fail("the victim was not seen before the job ended")


Victim = Callable[["subprocess.Popen[bytes]", Host], psutil.Process]
KILLS = [
    *(("inline", driver, seed) for seed in range(4)),
    *(("inline", parser, seed) for seed in range(4)),
    *(("inline", server, seed) for seed in range(4)),
    *(("ray", driver, seed) for seed in (1, 2)),
    *(("ray", parser, seed) for seed in (1, 2)),
    *(("ray", actor, seed) for seed in (1, 2)),
    *(("ray", server, seed) for seed in (1, 2)),
]


@pytest.mark.parametrize(
    ("runner", "victim", "seed"), KILLS, ids=[f"{runner}-{victim.__name__}-{seed}" for runner, victim, seed in KILLS]
)
def test_the_same_command_again_completes_what_a_kill_broke_off(
    host: Host, undisturbed: StoredTree, runner: str, victim: Victim, seed: int
) -> None:
    process = host.ingest(runner)
    _reach(seed, process, host)
    killed = victim(process, host)
    assert process.poll() is None, "the job ended before the kill"
    killed.send_signal(signal.SIGKILL)
    ended = process.wait(120)
    _end_group(process)
    assert ended == -signal.SIGKILL or victim is not driver
    assert ended == 0 or victim is not parser  # a job outlives its parsers

    assert (
        violations(Postgres.open(host.store.dsn)) == []
    )  # opened as a command does: the kill may have come before tables
    assert host.ingest("inline").wait(120) == 0
    assert violations(host.store) == []
    assert_identical(read_tree(host.store), undisturbed)


def _reach(seed: int, process: "subprocess.Popen[bytes]", host: Host) -> None:
    """Waits until the job reaches the moment. The first two are before and after it creates the tables, the others amid
    its documents."""
    draw = random.Random(seed)
    if seed == 0:
        time.sleep(draw.uniform(0.0, 0.4))
    else:
        wait_for(draw.randrange(1, DOCUMENTS // 2) if seed > 1 else 0, process, host)


def _end_group(process: "subprocess.Popen[bytes]") -> None:
    """Ends the session that the driver began. A killed driver leaves its Ray cluster behind, which belongs to it."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
