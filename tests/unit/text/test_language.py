"""Identification of a text's language, and the cache of the unpacked model."""

from pathlib import Path

import pytest

from rag_core.text import language
from rag_core.text.language import identify_language, load_identifier

GERMAN = "Das Mädchen läuft über die Straße zum Bäcker, weil es dort frische Brötchen gibt."
ENGLISH = "The girl crosses the street on her way to the baker, who sells fresh rolls in the morning. "


def rank_languages(folder: Path) -> list[tuple[str, float]]:
    ranked: list[tuple[str, float]] = load_identifier(folder).rank(GERMAN)
    return ranked


def test_the_cached_model_ranks_as_the_librarys_does(tmp_path: Path) -> None:
    unpacked = rank_languages(tmp_path / "cache")
    (cached,) = (tmp_path / "cache").iterdir()
    before = cached.stat().st_mtime_ns
    assert rank_languages(tmp_path / "cache") == unpacked
    assert unpacked[0][0] == "de"
    assert cached.stat().st_mtime_ns == before


@pytest.mark.slow
def test_a_damaged_model_is_unpacked_again(tmp_path: Path) -> None:
    unpacked = rank_languages(tmp_path)
    (cached,) = tmp_path.iterdir()
    for damage in (b"", b"no archive", cached.read_bytes()[:5_000]):
        cached.write_bytes(damage)
        assert rank_languages(tmp_path) == unpacked
        assert cached.stat().st_size > 5_000


def test_a_language_is_identified_even_if_the_model_cannot_be_cached(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert rank_languages(tmp_path / "file" / "folder")[0][0] == "de"


def test_more_text_is_read_if_the_beginning_leaves_a_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"Yoko Ono, Hiroshima, Nagasaki, Kyoto, Osaka, Sapporo 1 2 3 4 5 {'.' * 250}" + 8 * ENGLISH
    assert identify_language(text) == "en"
    monkeypatch.setattr(language, "HEAD_CHARS", language.HEAD_CHARS[:1])
    assert identify_language(text) != "en"
