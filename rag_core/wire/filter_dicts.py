"""Metadata filters as the documents' interfaces write them: by plain values, or in our own grammar."""

from collections.abc import Iterator, Mapping
from typing import Any


def combine_filters(*filters: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """One filter in the grammar of `rag_core.storage.filters` that requires all of these; None if they are empty.

    `{"language": "en", "year": [2025, 2026]}` requires the value of each key, or one of the values of its list.
    """
    parts = [part for given in filters for part in _split_filter(given or {})]
    return {"type": "and", "filters": parts} if parts else None


def _split_filter(given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if "type" in given and given.keys() & {"key", "filters"}:
        yield dict(given)
        return
    for key, value in given.items():
        is_list = isinstance(value, list | tuple)
        yield {"key": key, "type": "in" if is_list else "eq", "value": list(value) if is_list else value}
