"""A file whose lines are documents."""

import json
from pathlib import Path
from typing import Any

import pytest

from rag_core.errors import DocumentError, SourceError
from rag_core.ingestion.sources.json_lines import JsonLinesSource
from rag_core.settings import load_settings
from rag_core.types import Entry
from rag_core.wiring.ingestion import open_source


def write_lines(path: Path, *documents: dict[str, Any] | str) -> Path:
    lines = [line if isinstance(line, str) else json.dumps(line) for line in documents]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def open_lines(path: Path) -> JsonLinesSource:
    source = open_source(load_settings(), f"jsonl:{path}")
    assert isinstance(source, JsonLinesSource)
    return source


def list_entries(path: Path) -> dict[str, Entry]:
    """The entries by the part of the uri after `#`."""
    source = open_lines(path)
    assert source.uri == f"jsonl:{path.as_uri()}"
    return {entry.uri.removeprefix(f"{source.uri}#"): entry for entry in source.listing()}


def test_each_line_is_an_entry_that_is_read_alone(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "docs.jsonl", {"id": "a b", "text": "One."}, "", {"uri": "https://x.org", "text": "É"}
    )
    entries = list_entries(path)
    assert list(entries) == ["a%20b", "https%3A%2F%2Fx.org"]
    bodies = [json.loads(open_lines(path).read(entry)) for entry in entries.values()]
    assert [body["text"] for body in bodies] == ["One.", "É"]


def test_a_moved_line_has_the_same_entry_and_a_changed_one_another(tmp_path: Path) -> None:
    before = list_entries(
        write_lines(tmp_path / "docs.jsonl", {"id": "a", "text": "One."}, {"id": "b", "text": "Two."})
    )
    path = write_lines(
        tmp_path / "docs.jsonl", {"id": "c", "text": "New."}, {"id": "b", "text": "2"}, {"id": "a", "text": "One."}
    )
    after = list_entries(path)
    assert after["a"] == before["a"]
    assert after["b"] != before["b"]
    assert json.loads(open_lines(path).read(after["a"])) == {"id": "a", "text": "One."}


def test_a_line_that_is_not_a_document_fails_alone(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "docs.jsonl", {"id": "a", "text": "One."}, "{", {"id": "a", "text": "Two."}, {"id": "c"}
    )
    entries, source = list_entries(path), open_lines(path)
    assert json.loads(source.read(entries["a"]))["text"] == "One."
    reasons = {}
    for name in ("line%202", "line%203", "line%204"):
        with pytest.raises(DocumentError) as raised:
            source.read(entries[name])
        reasons[name] = raised.value.reason
    assert "line 2: document: Invalid JSON" in reasons["line%202"]
    assert reasons["line%203"] == "the ids of a file must be distinct; line 1 has the id 'a' too"
    assert "a document must have a text" in reasons["line%204"]


def test_a_line_that_changes_after_the_listing_is_tried_again(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "docs.jsonl", {"id": "a", "text": "One."})
    source = open_lines(path)
    (entry,) = source.listing()
    write_lines(path, {"id": "a", "text": "Two."})
    with pytest.raises(DocumentError) as raised:
        source.read(entry)
    assert (raised.value.reason, raised.value.retryable) == ("changed after it was listed", True)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    write_lines(tmp_path / "docs.jsonl", {"id": "a", "text": "One."})
    with pytest.raises(SourceError, match="must be a single file that is not compressed"):
        open_source(load_settings(), f"jsonl:{tmp_path}")
