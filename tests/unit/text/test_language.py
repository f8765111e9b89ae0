"""A text's language, and the model that is kept unpacked."""

from pathlib import Path

import pytest

from rag_core.text import language
from rag_core.text.language import detected, identifier

GERMAN = "Das Mädchen läuft über die Straße zum Bäcker, weil es dort frische Brötchen gibt."
ENGLISH = "The girl crosses the street on her way to the baker, who sells fresh rolls in the morning. "


def told(folder: Path) -> list[tuple[str, float]]:
    ranked: list[tuple[str, float]] = identifier(folder).rank(GERMAN)
    return ranked


def test_the_kept_model_tells_what_the_librarys_does(tmp_path: Path) -> None:
    unpacked = told(tmp_path / "made")
    (kept,) = (tmp_path / "made").iterdir()
    before = kept.stat().st_mtime_ns
    assert told(tmp_path / "made") == unpacked
    assert unpacked[0][0] == "de"
    assert kept.stat().st_mtime_ns == before


def test_a_damaged_model_is_made_anew(tmp_path: Path) -> None:
    unpacked = told(tmp_path)
    (kept,) = tmp_path.iterdir()
    for damage in (b"", b"no archive", kept.read_bytes()[:5_000]):
        kept.write_bytes(damage)
        assert told(tmp_path) == unpacked
        assert kept.stat().st_size > 5_000


def test_without_a_place_for_it_the_language_is_told_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert told(tmp_path / "file" / "folder")[0][0] == "de"


def test_where_the_beginning_leaves_a_doubt_more_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"Yoko Ono, Hiroshima, Nagasaki, Kyoto, Osaka, Sapporo 1 2 3 4 5 {'.' * 250}" + 8 * ENGLISH
    assert detected(text) == "en"
    monkeypatch.setattr(language, "HEADS", language.HEADS[:1])
    assert detected(text) != "en"
