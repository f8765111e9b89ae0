"""The README's lines on serving, against a gateway: they print what stands below them."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.serving import serve_graph
from workers import run_worker

from rag_core import open_knowledge_base
from rag_core.settings import load_settings
from rag_core.storage.postgres import Postgres
from serve.services import open_shared_resources

ROOT = Path(__file__).parents[2]
SECTION = re.search(r"<!-- serving -->\n(.*?)<!-- /serving -->", (ROOT / "README.md").read_text(), re.DOTALL)
ANYTHING = "…"

pytestmark = [pytest.mark.postgres, pytest.mark.model, pytest.mark.slow]


def shown() -> list[tuple[str, str, str]]:
    """(language, code, what it prints), in the section's order."""
    fenced = r"^```(sh|py)\n(.*?)^```\n\s*^```text\n(.*?)^```"
    assert SECTION, "the README must have a section between <!-- serving --> and <!-- /serving -->"
    return re.findall(fenced, SECTION[1], re.DOTALL | re.MULTILINE)


@pytest.fixture
def address(store: Postgres) -> Iterator[str]:
    with open_knowledge_base(store.dsn) as knowledge:
        knowledge.ingest(ROOT / "demo" / "corpus")
    settings = load_settings(overrides=[f"store.url={store.dsn}", "answering.budget=none"], environment={})
    with serve_graph(open_shared_resources(settings).build_services(settings)) as url, run_worker(settings):
        yield url.removeprefix("http://")


def printed(language: str, code: str, address: str) -> str:
    """The gateway is there already."""
    here = re.sub(r"^rag serve .*\n", "", code, flags=re.MULTILINE).replace("localhost:8000", address)
    command = ["bash", "-c", here] if language == "sh" else [sys.executable, "-c", here]
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return " ".join(done.stdout.split())


def test_the_section_shows_a_stream_a_search_openais_client_and_what_goes_in() -> None:
    assert [language for language, _, _ in shown()] == ["sh", "sh", "py", "sh"]


def test_every_line_prints_what_stands_below_it(address: str) -> None:
    for language, code, told in shown():
        pattern = ".*".join(re.escape(part) for part in " ".join(told.split()).split(ANYTHING))
        actual = printed(language, code, address)
        assert re.search(pattern, actual), f"{code}\nshould print:\n{told}\nprinted:\n{actual}"
