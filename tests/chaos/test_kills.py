"""Whatever is killed, and whenever: the same command again leaves the store as an undisturbed run does.

Out of the default run; `make chaos`. Every moment is drawn from a seed, so that a failure can be repeated.
"""

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable

import psutil
import pytest
from hosts import Host, postmaster
from trees import StoredTree, assert_same, broken, stored

pytestmark = [pytest.mark.chaos, pytest.mark.postgres, pytest.mark.timeout(300)]


def driver(process: "subprocess.Popen[bytes]", host: Host) -> psutil.Process:
    return psutil.Process(process.pid)


def actor(process: "subprocess.Popen[bytes]", host: Host) -> psutil.Process:
    """One of Ray's workers that has begun to work, whichever it is."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        workers = [each for each in psutil.Process(process.pid).children(recursive=True) if _works(each)]
        if workers:
            return workers[0]
        time.sleep(0.05)
    pytest.fail("no worker of Ray was seen")


def _works(process: psutil.Process) -> bool:
    try:
        return process.cmdline()[:1] != [] and process.cmdline()[0].startswith(("ray::MapWorker", "ray::Map"))
    except psutil.Error:
        return False


Victim = Callable[["subprocess.Popen[bytes]", Host], psutil.Process]
KILLS = [
    *(("inline", driver, seed) for seed in range(6)),
    *(("inline", postmaster, seed) for seed in range(5)),
    *(("ray", driver, seed) for seed in range(3)),
    *(("ray", actor, seed) for seed in range(3)),
    *(("ray", postmaster, seed) for seed in range(3)),
]


@pytest.mark.parametrize(
    ("runner", "victim", "seed"), KILLS, ids=[f"{runner}-{victim.__name__}-{seed}" for runner, victim, seed in KILLS]
)
def test_the_same_command_again_completes_what_a_kill_broke_off(
    host: Host, undisturbed: StoredTree, runner: str, victim: Victim, seed: int
) -> None:
    moment = random.Random(seed).uniform(0.6, 2.0) if runner == "inline" else random.Random(seed).uniform(3.0, 9.0)
    process = host.ingest(runner)
    time.sleep(moment)
    if process.poll() is None:
        victim(process, host).send_signal(signal.SIGKILL)
    process.wait(120)
    _end_group(process)

    assert broken(host.store) == []
    assert host.ingest("inline").wait(120) == 0
    assert broken(host.store) == []
    assert_same(stored(host.store), undisturbed)


def _end_group(process: "subprocess.Popen[bytes]") -> None:
    """A killed driver leaves its Ray cluster behind; it belongs to the session that the driver began."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
