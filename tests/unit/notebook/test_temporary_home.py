"""A store that leaves nothing behind."""

import os

import pytest

from rag_core.notebook.temporary_home import TemporaryHome
from rag_core.storage.embedded import rag_home


def test_no_setting_of_the_environment_applies_until_the_home_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAG_HOME", "/somewhere/else")
    monkeypatch.setenv("RAG_STORE__URL", "postgresql://production/rag")
    home = TemporaryHome()
    try:
        assert rag_home() == home.folder / "home"
        assert "RAG_STORE__URL" not in os.environ
        (home.folder / "notes.md").write_text("# Notes\n")
    finally:
        home.remove()
    assert not home.folder.exists()
    assert os.environ["RAG_HOME"] == "/somewhere/else"
    assert os.environ["RAG_STORE__URL"] == "postgresql://production/rag"


def test_a_removed_home_is_not_removed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAG_HOME", raising=False)
    home = TemporaryHome()
    home.remove()
    monkeypatch.setenv("RAG_HOME", "/mine")
    home.remove()
    assert os.environ["RAG_HOME"] == "/mine"
