"""A store that is full, frozen or away: a job waits as long as it may, says why it ends, and loses nothing."""

import errno
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from hosts import Host, postmaster
from moments import wait_for
from trees import StoredTree, assert_identical, read_tree, violations

from rag_core.storage import embedded

pytestmark = [pytest.mark.chaos, pytest.mark.postgres, pytest.mark.timeout(300)]

AWAY = 5.0


@pytest.fixture
def small_disk(short_folder: Path, folder: Path) -> Iterator[Host]:
    home = short_folder / "small-disk"
    home.mkdir(mode=0o755, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=300m,mode=755", "tmpfs", str(home)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs root, and the right to mount a tmpfs")
    host = Host(home, folder)
    embedded.start(home / "postgres")
    yield host
    embedded.stop(home / "postgres")
    subprocess.run(["umount", "--lazy", str(home)], check=True)


@pytest.mark.parametrize("documents", [1, 100, 200])
def test_a_full_disk_ends_the_job_with_its_reason_and_the_same_command_completes_it(
    small_disk: Host, undisturbed: StoredTree, documents: int
) -> None:
    filler = small_disk.home / "filler"
    with small_disk.ingest("inline", "--set", "store.patience_s=3", stderr=subprocess.PIPE) as process:
        wait_for(documents, process, small_disk)
        while process.poll() is None:
            _fill(filler)
            time.sleep(0.05)
        _, complaint = process.communicate()
    assert process.returncode != 0
    assert b"error: lost the connection to the store: " in complaint or b"error: cannot reach the store" in complaint, (
        complaint
    )
    assert b"No space left on device" in complaint or b"did not start" in complaint, complaint
    assert b"Traceback" not in complaint

    filler.unlink()
    assert violations(small_disk.store) == []
    assert small_disk.ingest("inline").wait(120) == 0
    assert violations(small_disk.store) == []
    assert_identical(read_tree(small_disk.store), undisturbed)


@pytest.mark.parametrize("documents", [1, 200])
def test_a_store_that_answers_nothing_for_a_while_is_waited_for(
    host: Host, undisturbed: StoredTree, documents: int
) -> None:
    with host.ingest("inline") as process:
        wait_for(documents, process, host)
        server = postmaster(host)
        frozen = [server, *server.children()]
        _signal(frozen, signal.SIGSTOP)
        time.sleep(AWAY)
        alive = process.poll() is None
        _signal(frozen, signal.SIGCONT)
        assert alive
        assert process.wait(120) == 0
    assert violations(host.store) == []
    assert_identical(read_tree(host.store), undisturbed)


@pytest.mark.parametrize("documents", [1, 200])
def test_a_store_that_is_away_for_a_while_is_waited_for(host: Host, undisturbed: StoredTree, documents: int) -> None:
    with host.ingest("inline", "--store", host.store.dsn) as process:  # a DSN: the job cannot start it again
        wait_for(documents, process, host)
        server = postmaster(host)
        server.send_signal(signal.SIGQUIT)
        time.sleep(AWAY)
        assert process.poll() is None
        embedded.start(host.home / "postgres")
        assert process.wait(120) == 0
    assert violations(host.store) == []
    assert_identical(read_tree(host.store), undisturbed)


def _signal(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
    """Sends the signal. Skips processes that have ended, such as the server of a connection that was just closed."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def _fill(filler: Path) -> None:
    """Fills the file system to the last block."""
    with filler.open("ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
