import pytest

from rag_core.errors import DocumentError
from rag_core.ingestion.parsing.formats import parser_for, recipe_part, suffix_of
from rag_core.ingestion.parsing.html import HtmlParser
from rag_core.ingestion.parsing.markdown import MarkdownParser
from rag_core.ingestion.parsing.text import TextParser


@pytest.mark.parametrize(
    ("uri", "head", "parser"),
    [
        ("a.MD", b"x", MarkdownParser),
        ("a.htm", b"x", HtmlParser),
        ("a.txt", b"<html>", TextParser),
        ("dir.d/README", b"words", TextParser),
        ("a.unknown", b"words \x1b[1m bold", TextParser),
        ("a.unknown", "Größe".encode("latin-1"), TextParser),
        ("a.unknown", "words".encode("utf-16"), TextParser),
        ("a.unknown", b"\xef\xbb\xbf\n <!DOCTYPE html>", HtmlParser),
        ("a.cgi", b"<!-- c --><HTML lang=en>", HtmlParser),
    ],
)
def test_suffix_chooses_the_parser_and_content_where_there_is_none(uri: str, head: bytes, parser: type) -> None:
    assert type(parser_for(uri, head)) is parser


@pytest.mark.parametrize(
    ("uri", "head", "reason"),
    [
        ("a.png", b"\x89PNG\r\n\0", "unsupported: .png"),
        ("a.txt", b"text \0 no", "unsupported: .txt"),
        ("program", b"\x7fELF\x02\x01\x01", "unsupported: binary content"),
        ("a.pdf", b"%PDF-1.4\n%words", "unsupported: .pdf"),
    ],
)
def test_binary_content_is_skipped_whatever_its_suffix_promises(uri: str, head: bytes, reason: str) -> None:
    with pytest.raises(DocumentError) as failed:
        parser_for(uri, head)
    assert (failed.value.reason, failed.value.status) == (reason, "skipped")


def test_recipes_differ_by_format_and_only_by_format() -> None:
    recipes = [recipe_part(uri) for uri in ("a.md", "a.html", "a.txt", "a.xyz")]
    assert len(set(recipes)) == 4
    assert recipe_part("x/b.MARKDOWN.gz") == recipes[0]
    assert recipe_part("README") == recipes[3]
    assert ["html-to-markdown" in recipe for recipe in recipes] == [False, True, False, True]


@pytest.mark.parametrize(("uri", "suffix"), [("a.b/c", ""), ("a/.bashrc", ""), ("a/b.tar.GZ", ".gz")])
def test_the_suffix_is_that_of_the_name(uri: str, suffix: str) -> None:
    assert suffix_of(uri) == suffix
