"""The page on security names tests and benchmarks that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_named_test_and_benchmark_exists() -> None:
    page = (ROOT / "docs" / "security.md").read_text()
    table = page.partition("## Threats")[2].partition("\n## ")[0]
    named = re.findall(r"`(test_\w+\.py|tests/[\w/]+(?:\.py)?|benchmarks\.\w+)`", table)
    assert len(named) > 20
    assert [name for name in named if not find_file(name).exists()] == []


def find_file(name: str) -> Path:
    """The file or folder of a name. Tests without a folder are those of the integration."""
    if name.startswith("benchmarks."):
        return ROOT / f"{name.replace('.', '/')}.py"
    return ROOT / name if "/" in name else ROOT / "tests" / "integration" / name
