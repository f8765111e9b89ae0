"""The pages on the server, backups, GPUs and troubleshooting: their commands run and print what the pages show."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import rag_in_process
from documents import ROOT, Reader, read_blocks
from fakes.serving import serve_profiles
from workers import run_worker

from rag_core import open_knowledge_base
from rag_core.storage import embedded
from rag_core.storage.postgres import Postgres
from serve.gateway_settings import SettingsSource, load_gateway_settings
from serve.profiles import build_profiles
from serve.services import open_shared_resources

pytestmark = [pytest.mark.postgres, pytest.mark.model, pytest.mark.slow]


def page(name: str) -> str:
    return (ROOT / "docs" / "how-to" / f"{name}.md").read_text()


@pytest.fixture
def home(short_folder: Path) -> Iterator[Path]:
    """A RAG_HOME that holds the sample corpus."""
    folder = short_folder / "home"
    Reader(ROOT, {"RAG_HOME": str(folder)}).run("rag ingest demo/corpus --quiet")
    yield folder
    embedded.stop(folder / "postgres")


@pytest.fixture
def address(store: Postgres) -> Iterator[str]:
    with open_knowledge_base(store.dsn) as knowledge:
        knowledge.ingest(ROOT / "demo" / "corpus")
    source = SettingsSource(set=(f"store.url={store.dsn}", "answering.budget=none"), environment={})
    settings = load_gateway_settings(source)
    profiles = build_profiles(settings, open_shared_resources(settings.own))
    with serve_profiles(profiles) as url, run_worker(settings.own):
        yield url.removeprefix("http://")


def test_the_server_streams_searches_ingests_and_serves_openais_client(address: str) -> None:
    reader = Reader(ROOT, replaced={"localhost:8000": address})
    assert " ".join(block.language for block in read_blocks(page("server"))) == "sh sh sh py sh sh sh yaml sh sh"
    reader.follow(page("server"))


def test_gpus_need_options_that_exist() -> None:
    Reader(ROOT).follow(page("gpu"))


def test_a_restored_dump_answers_from_a_new_embedded_server(home: Path, short_folder: Path, tmp_path: Path) -> None:
    restored = short_folder / "restored"
    try:
        Reader(tmp_path, {"RAG_HOME": str(home)}, {"RAG_HOME=restored": f"RAG_HOME={restored}"}).follow(page("backup"))
    finally:
        embedded.stop(restored / "postgres")


def test_the_steps_of_an_upgrade_keep_the_store(home: Path, tmp_path: Path) -> None:
    reader = Reader(tmp_path, {"RAG_HOME": str(home)})
    reader.follow(page("upgrade"))
    assert "1. The diving permit" in reader.run('rag search "How long may a dive last in cold water?" -k 1')


def test_a_dump_of_one_server_answers_from_another(home: Path, store: Postgres, tmp_path: Path) -> None:
    dump, restore = (block.text for block in read_blocks(page("backup")) if "DSN" in block.text)
    reader = Reader(tmp_path, {"DSN": embedded.start(home / "postgres"), "NEW_DSN": store.dsn})
    reader.run(dump)
    reader.run(restore)
    output = reader.run('rag search "How long may a dive last in cold water?" -k 1 --store "$NEW_DSN"')
    assert output.startswith("1. The diving permit")
    assert "0 added, 0 changed, 0 deleted, 51 unchanged" in reader.run(
        f'rag ingest {ROOT}/demo/corpus --store "$NEW_DSN"'
    )


def test_messages_are_those_that_the_page_explains(store: Postgres, capfd: pytest.CaptureFixture[str]) -> None:
    reader = Reader(ROOT, {"RAG_STORE__URL": store.dsn}, rag=rag_in_process(capfd))
    reader.follow(page("troubleshooting"))
    code = "".join(
        file.read_text() for folder in ("rag_core", "serve", "rag_cli") for file in (ROOT / folder).rglob("*.py")
    )
    named = [message for message in re.findall(r"\*\*`([^`]+)`", page("troubleshooting")) if "extension" not in message]
    parts = [part.strip() for message in named for part in message.split("…") if len(part) > 8]
    assert len(parts) >= 10
    assert [part for part in parts if part not in code] == []
