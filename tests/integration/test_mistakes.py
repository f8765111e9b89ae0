"""Mistakes of users: each message names the rule, the value and the remedy, and none is a traceback."""

import sys
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import pytest
from commands import Rag, rag_in_process
from mistakes import MISTAKES, Mistake, make, prepare

from rag_core.storage.postgres import Postgres

pytestmark = [pytest.mark.postgres, pytest.mark.slow]


@pytest.fixture(scope="module")
def folder(module_store: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("RAG_STORE__URL", module_store.dsn)
        patched.setenv("RAG_EMBEDDING__TYPE", "hashing")
        patched.setattr(sys, "path", [*sys.path])  # commands append the working directory
        folder = tmp_path_factory.mktemp("mistakes")
        with chdir(folder):
            yield folder


@pytest.fixture
def rag(folder: Path, capfd: pytest.CaptureFixture[str]) -> Rag:
    rag = rag_in_process(capfd)
    if not (folder / "docs").exists():
        prepare(rag)
    return rag


@pytest.mark.filterwarnings("ignore:Using extra keyword arguments:DeprecationWarning")  # an import of Ray Serve
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: " ".join(mistake.arguments)[:60])
def test_a_mistake_is_answered_with_its_rule_its_value_and_its_remedy(rag: Rag, mistake: Mistake) -> None:
    outcome = make(mistake, rag)
    assert outcome.code == mistake.code, outcome.text
    for part in (mistake.rule, mistake.value, mistake.remedy):
        assert part in outcome.message
    assert "Traceback" not in outcome.text
    assert "hunter2" not in outcome.text
    assert "sk-1" not in outcome.text


def test_there_are_forty_of_them() -> None:
    assert len(MISTAKES) >= 40
