"""The tests here import three large libraries, for seconds: runs without slow tests do not even collect them."""

from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if "not slow" in config.option.markexpr else None
