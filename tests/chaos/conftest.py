"""A corpus, a host to disturb, and what the store of an undisturbed one holds."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts import DOCUMENTS, Host
from trees import StoredTree, read_tree, write

from rag_core.storage import embedded


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    words = ["gate", "key", "tide", "lamp", "pilot", "lock", "crane", "harbour", "turbine", "valve"]
    draw = random.Random(0)
    files = {}
    for number in range(DOCUMENTS):
        sections = [f"## Part {part}\n\n{' '.join(draw.choices(words, k=80))}." for part in range(draw.randint(1, 6))]
        files[f"{number:03}.md"] = f"# Document {number}\n\n" + "\n\n".join(sections)
    return write(tmp_path_factory.mktemp("corpus") / "docs", files)


@pytest.fixture
def host(short_folder: Path, folder: Path, request: pytest.FixtureRequest) -> Iterator[Host]:
    home = short_folder / f"chaos-{abs(hash(request.node.name)) % 10**8}"
    host = Host(home, folder)
    embedded.start(home / "postgres")
    yield host
    embedded.stop(home / "postgres")


@pytest.fixture(scope="session")
def undisturbed(short_folder: Path, folder: Path) -> StoredTree:
    host = Host(short_folder / "undisturbed", folder)
    assert host.ingest("inline").wait(120) == 0
    tree = read_tree(host.store)
    embedded.stop(host.home / "postgres")
    return tree
