import gzip

import pytest

from rag_core.errors import DocumentError
from rag_core.parsing import document as module
from rag_core.parsing.document import TABLE_HEADER_CUT, parse
from rag_core.types import Document


def parse_with_limits(uri: str, body: bytes) -> Document:
    return parse(uri, body, detect_language=True, file_mb=1.0, text_mb=0.5)


def failure(uri: str, body: bytes) -> DocumentError:
    with pytest.raises(DocumentError) as failed:
        parse_with_limits(uri, body)
    return failed.value


def test_a_compressed_document_keeps_its_uri_and_is_read_by_its_inner_suffix() -> None:
    document = parse_with_limits("file:///x/a%20b.md.gz", gzip.compress(b"words only") + gzip.compress(b", and more"))
    assert (document.uri, document.media_type) == ("file:///x/a%20b.md.gz", "text/markdown")
    assert (document.text, document.title) == ("words only, and more", "a b")


def test_a_gzip_bomb_ends_at_the_limit() -> None:
    bomb = gzip.compress(b"\0" * 50_000_000)
    assert len(bomb) < 60_000
    assert failure("a.txt.gz", bomb).reason == "too large: more than 1 MB when decompressed"


@pytest.mark.parametrize(
    "body", [b"no gzip", gzip.compress(b"words" * 99, mtime=0)[:-9], gzip.compress(b"x", mtime=0)[:12] + b"\xff" * 9]
)
def test_damaged_gzip_is_reported(body: bytes) -> None:
    assert failure("a.txt.gz", body).reason.startswith("damaged gzip: ")


@pytest.mark.parametrize(
    ("uri", "body"), [("a.txt", b" \n"), ("a.md", b"---\na: b\n---\n"), ("a.html", b"<p></p>"), ("a", b"")]
)
def test_a_document_without_text_is_skipped_as_empty(uri: str, body: bytes) -> None:
    assert (failure(uri, body).reason, failure(uri, body).status) == ("empty", "skipped")


@pytest.mark.parametrize(
    ("uri", "body", "name"), [("a.md", b"x", "markdown"), ("a.csv", b"<html><p>x", "html"), ("a", b'{"a": 1}', "json")]
)
def test_the_metadata_names_the_format(uri: str, body: bytes, name: str) -> None:
    assert parse_with_limits(uri, body).metadata["format"] == name


def test_characters_that_cannot_be_stored_are_replaced_for_every_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    class Careless:
        def parse(self, uri: str, _: bytes) -> Document:
            bad = "a\0\ud800"
            return Document(uri=uri, text=bad, title=bad, metadata={bad: bad, "tags": [bad], "n": 1})

    monkeypatch.setattr(module, "load_parser", lambda *_: Careless())
    document = parse_with_limits("a.txt", b"x")
    good = "a\ufffd\ufffd"
    assert (document.text, document.title) == (good, good)
    assert document.metadata == {good: good, "tags": [good], "n": 1, "format": "text"}


def test_too_much_text_fails() -> None:
    assert len(parse_with_limits("a.txt", b"x" * 500_000).text) == 500_000
    assert failure("a.txt", b"x" * 500_001).reason == "too large: 0.5 MB of text, limit 0.5 MB"


def test_text_above_the_limit_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "load_parser", None)
    assert failure("a.txt", b"x" * 500_001).reason == "too large: 0.5 MB of text, limit 0.5 MB"


@pytest.mark.parametrize(("columns", "flags"), [(50, []), (500, [TABLE_HEADER_CUT])])
def test_a_table_whose_header_row_is_too_long_to_repeat_is_flagged(columns: int, flags: list[str]) -> None:
    body = "\n".join(",".join(f"{name}{i}" for i in range(columns)) for name in "ab")
    assert parse_with_limits("a.csv", body.encode()).metadata.get("flags", []) == flags
