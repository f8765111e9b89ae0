"""The README's lines on serving, against a gateway: they print what stands below them."""

import re
from collections.abc import Iterator

import pytest
from documents import ROOT, Block, Reader, read_blocks
from fakes.serving import serve_graph
from workers import run_worker

from rag_core import open_knowledge_base
from rag_core.settings import load_settings
from rag_core.storage.postgres import Postgres
from serve.services import open_shared_resources

SECTION = re.search(r"<!-- serving -->\n(.*?)<!-- /serving -->", (ROOT / "README.md").read_text(), re.DOTALL)

pytestmark = [pytest.mark.postgres, pytest.mark.model, pytest.mark.slow]


def blocks() -> list[Block]:
    assert SECTION, "the README must have a section between <!-- serving --> and <!-- /serving -->"
    return read_blocks(SECTION[1])


@pytest.fixture
def address(store: Postgres) -> Iterator[str]:
    with open_knowledge_base(store.dsn) as knowledge:
        knowledge.ingest(ROOT / "demo" / "corpus")
    settings = load_settings(overrides=[f"store.url={store.dsn}", "answering.budget=none"], environment={})
    with serve_graph(open_shared_resources(settings).build_services(settings)) as url, run_worker(settings):
        yield url.removeprefix("http://")


def test_the_section_shows_a_stream_a_search_openais_client_and_what_goes_in() -> None:
    assert [block.language for block in blocks() if block.printed] == ["sh", "sh", "py", "sh"]


def test_every_line_prints_what_stands_below_it(address: str) -> None:
    reader = Reader(ROOT, replaced={"rag serve --port 8000 &\n": "", "localhost:8000": address})
    for block in blocks():
        reader.run_block(block)
