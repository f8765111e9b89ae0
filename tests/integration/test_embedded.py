"""The private server: one per folder, whoever starts it and whatever was done to it."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from hosts import RAG

from rag_core.storage import embedded
from rag_core.storage.postgres import Postgres

pytestmark = pytest.mark.postgres

START = """
import sys
from pathlib import Path
from rag_core.storage import embedded
print(embedded.start(Path(sys.argv[1])))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    home = Path(tempfile.mkdtemp(prefix="rag-", dir="/tmp"))
    home.chmod(0o755)
    yield home / "postgres"
    embedded.stop(home / "postgres")
    shutil.rmtree(home)


def postmaster(folder: Path) -> int:
    return int((folder / "postmaster.pid").read_text().split()[0])


@pytest.mark.slow
def test_a_server_is_started_once_and_stopped_once(folder: Path) -> None:
    assert embedded.server_dsn(folder) == ""
    dsn = embedded.start(folder)
    process = postmaster(folder)
    assert embedded.start(folder) == embedded.server_dsn(folder) == dsn
    assert postmaster(folder) == process
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("create table kept (n int)")
    assert embedded.stop(folder)
    assert not embedded.stop(folder)
    assert embedded.server_dsn(folder) == ""
    with psycopg.connect(embedded.start(folder)) as connection:
        assert connection.execute("select count(*) from kept").fetchone() == (0,)


def test_what_was_committed_survives_that_the_server_is_killed(folder: Path) -> None:
    with psycopg.connect(embedded.start(folder), autocommit=True) as connection:
        connection.execute("create table kept as select generate_series(1, 600) as n")
        os.kill(postmaster(folder), signal.SIGKILL)
    with psycopg.connect(embedded.start(folder)) as connection:
        assert connection.execute("select count(*), max(n) from kept").fetchone() == (600, 600)


@pytest.mark.slow
def test_a_server_starts_although_another_program_has_the_process_id_of_the_one_that_was_killed(folder: Path) -> None:
    embedded.start(folder)
    os.kill(killed := postmaster(folder), signal.SIGKILL)
    pid_file = folder / "postmaster.pid"
    with subprocess.Popen(["sleep", "600"], user=folder.owner()) as other:
        pid_file.write_text(pid_file.read_text().replace(str(killed), str(other.pid), 1))
        try:
            assert embedded.start(folder)
            assert postmaster(folder) != other.pid
        finally:
            other.kill()


@pytest.mark.slow
def test_processes_that_start_at_once_get_one_server(folder: Path) -> None:
    command = [sys.executable, "-c", START, str(folder)]
    starting = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    dsns = [process.communicate(timeout=60)[0].strip() for process in starting]
    assert dsns == [embedded.server_dsn(folder)] * 2
    assert dsns[0] != ""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a folder of Ana's", "deep" * 30], ids=["spaces", "longer than a socket's path"])
def test_any_folder_will_do(folder: Path, name: str) -> None:
    inner = folder.parent / name / "postgres"
    postgres = Postgres.open(embedded.start(inner))
    try:
        with postgres.connect() as connection:
            assert connection.execute("select current_user").fetchone() == ("rag_app",)
    finally:
        assert embedded.stop(inner)


def test_the_folder_is_below_the_home_that_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAG_HOME", "~/knowledge")
    assert embedded.data_folder() == Path.home() / "knowledge" / "postgres"


@pytest.mark.slow
def test_the_first_command_reports_where_the_server_is_and_how_to_stop_it(folder: Path) -> None:
    environment = {**os.environ, "RAG_HOME": str(folder.parent), "RAG_STORE__URL": "embedded"}

    def list_collections(*options: str) -> str:
        command = [*RAG, "collections", "list", *options]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stderr

    line = f"started a private Postgres in {folder}; it keeps running until `rag store stop`\n"
    assert list_collections().startswith(line)
    assert line not in list_collections()
    embedded.stop(folder)
    shutil.rmtree(folder)
    assert list_collections("--json") == ""
