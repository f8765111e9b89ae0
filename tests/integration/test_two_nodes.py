"""Syncs on a Ray cluster of two nodes: what only one host can reach is refused, everything else is ingested."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from pathlib import Path
from threading import Thread
from typing import Any

import fsspec
import psutil
import psycopg
import pytest
from buckets import run_s3
from documents import ROOT, Reader, read_blocks
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Identifier
from trees import assert_same, hashing_settings, read_tree, violations, write

from benchmarks.free_port import find_free_port
from benchmarks.tcp_servers import run_over_tcp
from rag_core.storage import embedded
from rag_core.storage.postgres import Postgres
from rag_core.wiring.ingestion import build_inline_runner, build_sync

pytestmark = [pytest.mark.ray, pytest.mark.postgres, pytest.mark.slow, pytest.mark.timeout(400)]

SCRIPT = Path(__file__).parents[1] / "two_nodes.py"
MARK = "TEST_OF_TWO_NODES"
ONE_CPU = "--num-cpus=1"
"""Else each of the nodes counts all CPUs of this machine as its own, and starts that many workers."""
FILES = {f"{n:02}.md": f"# Gate {n}\n\nGate {n} is four metres wide and opens at {n % 12}.\n" for n in range(20)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("two-nodes") / "docs", FILES)


@pytest.fixture(scope="module")
def folder_url(folder: Path) -> Iterator[str]:
    """The uri of the folder that every host can read."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Unlogged, directory=str(folder))) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


class Unlogged(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        return


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpStores:
    """Stores of a server that another host could reach."""

    of_folders: Postgres
    of_urls: Postgres
    of_the_page: Postgres


@pytest.fixture(scope="module")
def stores(short_folder: Path) -> Iterator[TcpStores]:
    with run_over_tcp(short_folder / "tcp-two-nodes") as dsn:
        names = ("of_folders", "of_urls", "of_the_page")
        with psycopg.connect(dsn, autocommit=True) as connection:
            for name in names:
                connection.execute(SQL("create database {}").format(Identifier(name)))
        yield TcpStores(**{name: Postgres.open(make_conninfo(dsn, dbname=name)) for name in names})


@pytest.fixture(scope="module")
def outcomes(module_store: Postgres, stores: TcpStores, folder: Path, folder_url: str) -> list[dict[str, Any]]:
    """The outcomes of syncs on the same two nodes: of the embedded store, of three local sources, of a shared one."""
    local = [str(folder), f"local://{folder}", f"jsonl:{write_lines(folder.parent)}"]
    return sync_on_two_nodes(
        (module_store.dsn, folder_url),
        *((stores.of_folders.dsn, name) for name in local),
        (stores.of_urls.dsn, folder_url),
    )


def test_the_embedded_store_is_refused(outcomes: list[dict[str, Any]], module_store: Postgres) -> None:
    refused, *_ = outcomes
    assert (refused["nodes"], refused["error"]) == (2, "StoreError")
    assert "store.url" in refused["message"]
    assert violations(module_store) == []


def test_a_folder_that_both_nodes_see_is_ingested(outcomes: list[dict[str, Any]], stores: TcpStores) -> None:
    _, *local, _ = outcomes
    assert [(outcome["nodes"], outcome["documents"]["completed"]) for outcome in local] == [(2, 20), (2, 0), (2, 2)]
    assert violations(stores.of_folders) == []


def test_shared_files_are_ingested_as_in_one_process(
    outcomes: list[dict[str, Any]], stores: TcpStores, folder_url: str
) -> None:
    *_, shared = outcomes
    assert shared["nodes"] == 2, shared
    assert shared["documents"]["completed"] == len(FILES)
    settings, store = hashing_settings(), stores.of_urls
    build_sync(settings, store, [folder_url], "inline").run(build_inline_runner(settings))
    assert_same(read_tree(store), read_tree(store, "inline"))
    assert violations(store) == []


@pytest.mark.timeout(900)  # two nodes and three jobs: two minutes on two cores with nothing else to do
def test_the_commands_of_the_page_start_a_cluster_with_a_token_and_use_it(
    stores: TcpStores, short_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, home, mark = stores.of_the_page, short_folder / "cluster", f"{os.getpid()}-{time.monotonic_ns()}"
    head, dashboard, client, *agents = (find_free_port() for _ in range(5))
    replaced = {
        "--port=6379": f"--port={head} --dashboard-port={dashboard} --ray-client-server-port={client}"
        f" --dashboard-agent-listen-port={agents[0]} {ONE_CPU}",
        "ray start --address=head.internal:6379": f"ray start --address=127.0.0.1:{head}"
        f" --dashboard-agent-listen-port={agents[1]} {ONE_CPU}",
        "head.internal:6379": f"127.0.0.1:{head}",
        "head.internal:8265": f"127.0.0.1:{dashboard}",
        "host=db.internal dbname=rag user=rag sslmode=verify-full": store.dsn,
    }
    for name in [name for name in os.environ if name.startswith("RAY_")]:  # those of this process's own Ray
        monkeypatch.delenv(name)
    write(tmp_path, {"notes/a.md": "# A note\n\nThe gate opens at nine.\n", "job/acme/__init__.py": ""})
    (chunker,) = (block for block in read_blocks(read_page("extend")) if block.file == "acme/chunking.py")
    Reader(tmp_path / "job").write_file(chunker)
    home.mkdir()
    environment = {MARK: mark, "HOME": str(home), "RAG_HOME": str(home), "RAG_EMBEDDING__TYPE": "hashing"}
    # else the driver of a submitted job joins whichever cluster of this machine started last
    environment |= {"RAY_TMPDIR": str(home)}
    try:
        with run_s3(tmp_path / "s3.log") as s3:
            for name, value in {"ENDPOINT_URL": s3, "ACCESS_KEY_ID": "any", "SECRET_ACCESS_KEY": "any"}.items():
                monkeypatch.setenv(f"AWS_{name}", value)
            bucket = fsspec.filesystem("s3")
            bucket.mkdir("handbook")
            bucket.pipe({f"handbook/docs/{name}": text.encode() for name, text in FILES.items()})
            Reader(tmp_path, environment, replaced).follow(read_page("ray-cluster"))
    finally:
        embedded.stop(home / "postgres")
        _end(mark)
    assert read_tree(store).statuses() == dict.fromkeys(FILES, "completed")
    assert len(read_tree(store, "paragraphs").chunks) == len(FILES)
    assert violations(store) == []


def write_lines(folder: Path) -> Path:
    file = folder / "documents.jsonl"
    file.write_text("".join(json.dumps({"id": name, "text": f"Gate {name} is open."}) + "\n" for name in "ab"))
    return file


def read_page(name: str) -> str:
    return (ROOT / "docs" / "how-to" / f"{name}.md").read_text()


def sync_on_two_nodes(*pairs: tuple[str, str]) -> list[dict[str, Any]]:
    """The outcomes of a sync of each store and location on two nodes. Asserts that all processes have ended."""
    mark = f"{os.getpid()}-{time.monotonic_ns()}"
    process = subprocess.run(
        [sys.executable, str(SCRIPT), *chain(*pairs)],
        env=os.environ | {MARK: mark, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert _remaining_processes(mark) == []
    outcomes: list[dict[str, Any]] = json.loads(process.stdout.splitlines()[-1])
    return outcomes


def _remaining_processes(mark: str) -> list[str]:
    """The names of the processes that still run after 10 s: Ray's processes end a moment after their raylet."""
    deadline = time.monotonic() + 10
    while (names := [process.name() for process in psutil.process_iter() if _has_mark(process, mark)]) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.1)
    return names


def _end(mark: str) -> None:
    """Ends the processes of a cluster. `ray stop` would end those of all clusters of this machine.

    Ray's agents have a title in place of their environment, and are found as children.
    """
    for process in psutil.process_iter():
        if _has_mark(process, mark):
            with suppress(psutil.NoSuchProcess):
                for child in process.children(recursive=True):
                    child.kill()
                process.kill()
    assert _remaining_processes(mark) == []


def _has_mark(process: psutil.Process, mark: str) -> bool:
    try:
        return process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
