"""The pages on features, schedules and profiles: their files are valid, and their commands exist."""

from pathlib import Path

import pytest
from commands import rag_in_process
from documents import ROOT, Reader

from rag_core.features import FEATURES
from rag_core.storage.postgres import Postgres

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

HASHING = {"RAG_EMBEDDING__TYPE": "hashing"}


def page(name: str) -> str:
    return (ROOT / "docs" / "how-to" / f"{name}.md").read_text()


@pytest.mark.parametrize("name", ["features", "schedule"])
def test_the_commands_of_a_page_work(
    name: str, store: Postgres, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    Reader(tmp_path, {**HASHING, "RAG_STORE__URL": store.dsn}, rag=rag_in_process(capfd)).follow(page(name))


def test_the_page_lists_every_feature_with_its_phase() -> None:
    rows = [line.split("|")[1:3] for line in page("features").splitlines() if line.startswith("| `")]
    listed = {name.strip(" `"): phase.strip() for name, phase in rows if ".yaml" not in name}
    assert listed == {name: str(feature.phase) if feature.phase else "none" for name, feature in FEATURES.items()}
