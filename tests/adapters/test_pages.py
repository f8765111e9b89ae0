"""The programs of the page on adapters run, and print what it shows."""

from pathlib import Path

import pytest
from documents import ROOT, Reader, read_blocks
from fakes.serving import serve_profiles

from rag_core import open_knowledge_base
from rag_core.settings import load_settings
from rag_core.storage.postgres import Postgres
from serve.profiles import ServedProfiles
from serve.services import open_shared_resources

pytestmark = [pytest.mark.postgres, pytest.mark.slow, pytest.mark.timeout(900)]


def test_the_page_on_adapters_prints_what_it_shows(store: Postgres, tmp_path: Path) -> None:
    overrides = ["embedding.type=hashing", "answering.budget=none"]
    with open_knowledge_base(store.dsn, settings=overrides) as knowledge:
        knowledge.ingest(ROOT / "demo" / "corpus")
    settings = load_settings(overrides=[*overrides, f"store.url={store.dsn}"])
    environment = {
        "RAG_STORE__URL": store.dsn,
        "RAG_EMBEDDING__TYPE": "hashing",
        "HAYSTACK_TELEMETRY_ENABLED": "False",
    }
    page = (ROOT / "docs" / "how-to" / "adapters.md").read_text()
    assert [block.language for block in read_blocks(page)] == ["sh", *["python"] * 4]
    services = open_shared_resources(settings).build_services(settings)
    with serve_profiles(ServedProfiles(services)) as url:
        Reader(tmp_path, environment, {"http://localhost:8000": url}).follow(page)
