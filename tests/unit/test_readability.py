"""The words of the project stay plain: the figures of `tools.readability` keep their limits."""

from pathlib import Path

import pytest

from tools.readability import PACKAGES, is_participle, measure

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_project_keeps_the_limits() -> None:
    assert measure(ROOT / package for package in PACKAGES).broken_limits == []


@pytest.mark.parametrize("name", ["joined", "_told", "sent_files", "found"])
def test_a_participle_is_recognized(name: str) -> None:
    assert is_participle(name)


@pytest.mark.parametrize("name", ["join_lines", "_read_rows", "embed", "need", "speed"])
def test_a_verb_is_not_a_participle(name: str) -> None:
    assert not is_participle(name)


def test_each_figure_counts_what_breaks_its_rule(tmp_path: Path) -> None:
    lines = [
        "def joined(text):",
        '    """Of a text."""',
        "    told = text",
        "    return _helper(told)",
        "",
        "def _helper(text):",
        '    """Returns the text."""',
        "    return text",
    ]
    (tmp_path / "module.py").write_text("\n".join(lines))

    figures = measure([tmp_path]).figures

    assert figures == {
        "lines": 8,
        "participles": 50.0,
        "fragments": 50.0,
        "vague": pytest.approx(100 / 3),
        "used_once": 125.0,
        "median": 1.5,
        "p90": 2,
        "longest": 2,
    }
