"""Rows of a JSON, JSON Lines or Parquet file."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rag_core.errors import DatasetError
from rag_core.evaluation.dataset_lines import Row, read_json_lines


def read_rows(path: Path) -> Iterator[tuple[str, Row]]:
    """Yields each row with its location, without the keys whose value is null.

    The location is `file:line` in JSON Lines, and `file: row number`, from 1, in the other formats.
    """
    match path.suffix:
        case ".parquet":
            rows = _number_rows(path, _read_parquet(path))
        case ".json":
            rows = _number_rows(path, _read_json_list(path))
        case _:
            rows = read_json_lines(path)
    for location, row in rows:
        yield location, {key: value for key, value in row.items() if value is not None}


def _number_rows(path: Path, rows: list[dict[str, Any]]) -> Iterator[tuple[str, Row]]:
    return ((f"{path}: row {number}", row) for number, row in enumerate(rows, start=1))


def _read_parquet(path: Path) -> list[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise DatasetError(f"{path} cannot be read as Parquet: {error}") from error
    return rows


def _read_json_list(path: Path) -> list[dict[str, Any]]:
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise DatasetError(f"{path} must be a list of JSON objects; name a file with one object per line .jsonl")
    return rows
