"""Files with one JSON object per line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def json_lines(file: Path) -> Iterator[dict[str, Any]]:
    with file.open() as lines:
        yield from map(json.loads, lines)
