import importlib
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import pytest
from compound import compound

from rag_core.errors import DocumentError
from rag_core.parsing import formats
from rag_core.parsing.detection import SUFFIXES, detect_format, suffix_of
from rag_core.parsing.formats import FORMATS, load_parser, recipe_part


def zip_entries(**entries: bytes | str) -> bytes:
    out = BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in entries.items():
            archive.writestr(zipfile.ZipInfo(name), content)  # without the time: ids are the same in every process
    return out.getvalue()


DOCX = zip_entries(**{"[Content_Types].xml": "", "word/document.xml": ""})
XLSX = zip_entries(**{"[Content_Types].xml": "", "xl/workbook.xml": ""})
EPUB = zip_entries(mimetype="application/epub+zip", **{"OEBPS/a.xhtml": ""})
ODT = zip_entries(mimetype="application/vnd.oasis.opendocument.text", **{"content.xml": ""})
MAIL = b"Received: x\nFrom: a\n\tb\nSubject: s\n\nbody"


@pytest.mark.parametrize(
    ("uri", "body", "name"),
    [
        ("a.MD", b"x", "markdown"),
        ("a.htm", b"x", "html"),
        ("a.txt", b"<html>", "text"),
        ("dir.d/README", b"words", "text"),
        ("a.unknown", b"words \x1b[1m bold", "text"),
        ("a.unknown", "Größe".encode("latin-1"), "text"),
        ("a.unknown", "words".encode("utf-16"), "text"),
        ("a.unknown", b"\xef\xbb\xbf\n <!DOCTYPE html>", "html"),
        ("a.cgi", b"<!-- c --><HTML lang=en>", "html"),
        ("a.tsv", b"a\tb", "csv"),
        ("a.adoc", b"= T", "asciidoc"),
        ("a.nxml", b"<article/>", "xml"),
        ("a.svg", b"<?xml version='1.0'?><svg/>", "xml"),
        ("a", "<?xml version='1.0'?><a/>".encode("utf-16"), "xml"),
        ("a", b'{"a": 1}', "json"),
        ("a", b'{"a": 1}\n{"a": 2}\n', "json"),
        ("a", b"[[1, 2], [3]]", "json"),
        ("notes.wiki", b"[[Home]] is a page. [[More]]", "text"),
        ("a", b'{ "just": a snippet }', "text"),
        ("a", b"[1] is a footnote", "text"),
        ("a.tmpl", b'{"a": 1} and more', "text"),
        ("a", MAIL, "eml"),
        ("a", b"Note: this\nTo: that\n", "text"),
        ("a.rtf", rb"{\rtf1 x}", "rtf"),
        ("a.pdf", b"junk\n%PDF-1.4", "pdf"),
    ],
)
def test_text_is_detected_by_its_suffix_or_else_by_its_content(uri: str, body: bytes, name: str) -> None:
    assert detect_format(uri, body) == name


@pytest.mark.parametrize(
    ("uri", "body", "name"),
    [
        ("a.txt", b"%PDF-1.4\n", "pdf"),
        ("a.doc", rb"{\rtf1 x}", "rtf"),
        ("a.xls", b"<html><table>", "html"),
        ("a.csv", b"<!doctype html><p>", "html"),
        ("a.pdf", b"<html>not found", "html"),
        ("a.txt", b"<!DOCTYPE html>\n<html lang=en><p>a page</html>\n", "html"),
        ("a.md", b"<html> begins a page, and </html> ends it.", "markdown"),
        ("a.txt", b"<?xml version='1.0'?>\n<a:b c='d'>e</a:b>\n", "xml"),
        ("a.txt", b"<?xml version='1.0'?><!DOCTYPE a PUBLIC 'b'>\n<a>c</a>", "xml"),
        ("a.log", b"<?xml version='1.0'?><a>b</a>\n<?xml version='1.0'?><a>b</a>", "text"),
        ("a.docx", b"just words", "text"),
        ("a.doc", DOCX, "docx"),
        ("a.zip", XLSX, "xlsx"),
        ("a.docx", ODT, "odt"),
        ("a", EPUB, "epub"),
        ("a.xls", compound({"WordDocument": b"x"}), "doc"),
        ("a.doc", compound({"PowerPoint Document": b"x"}), "ppt"),
        ("a", compound({"Book": b"x", "folder/WordDocument": b"x"}), "xls"),
        ("a.doc", compound({"__properties_version1.0": b"x"}), "msg"),
    ],
)
def test_a_wrong_suffix_does_not_mislead(uri: str, body: bytes, name: str) -> None:
    assert detect_format(uri, body) == name


def test_a_damaged_archive_is_left_to_the_parser_of_its_suffix() -> None:
    assert detect_format("a.docx", DOCX[:40]) == "docx"
    assert detect_format("a.doc", compound({"WordDocument": b"x"})[:100]) == "doc"


NOT_UPLOADED = "; an archive cannot be uploaded, `rag ingest` reads the files in it"


@pytest.mark.parametrize(
    ("uri", "body", "reason"),
    [
        ("a.png", b"\x89PNG\r\n\0", "unsupported: a PNG image"),
        ("a.txt", b"text \0 no", "unsupported: binary content named .txt"),
        ("program", b"\x7fELF\x02\x01\x01", "unsupported: a Linux program"),
        ("a.ps", b"%!PS-Adobe", "unsupported: PostScript"),
        ("a.zip", zip_entries(a="b"), f"unsupported: a ZIP archive{NOT_UPLOADED}"),
        ("a.tgz", b"\x1f\x8b\x08\0", f"unsupported: a gzip archive{NOT_UPLOADED}"),
    ],
)
def test_content_that_no_parser_reads_is_skipped_with_any_suffix(uri: str, body: bytes, reason: str) -> None:
    with pytest.raises(DocumentError) as failed:
        detect_format(uri, body)
    assert (failed.value.reason, failed.value.status) == (reason, "skipped")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (compound({"EncryptedPackage": b"x", "EncryptionInfo": b"x"}), "password protected"),
        (b"PK\x03\x04" + b"PK\x01\x02" * 10_001, "too large: more than 10000 archive entries"),
    ],
)
def test_a_file_that_cannot_be_opened_fails_by_name(body: bytes, reason: str) -> None:
    with pytest.raises(DocumentError) as failed:
        detect_format("a.docx", body)
    assert (failed.value.reason, failed.value.status) == (reason, "failed")


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_has_a_parser_and_modules_with_a_version(name: str) -> None:
    assert callable(load_parser(name).parse)
    for module in (FORMATS[name].module, *FORMATS[name].versioned_modules):
        full = f"rag_core.parsing.{module}"
        loaded = importlib.import_module(full).VERSION
        assert formats._VERSION.search(Path(sys.modules[full].__file__ or "").read_text())[1] == str(loaded)  # type: ignore[index]


def test_every_suffix_names_a_format() -> None:
    assert set(SUFFIXES.values()) == set(FORMATS)


def test_a_missing_library_skips_its_format_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypdfium2", None)
    monkeypatch.delitem(sys.modules, "rag_core.parsing.pdf.pdf", raising=False)
    load_parser.cache_clear()
    with pytest.raises(DocumentError) as failed:
        load_parser("pdf")
    load_parser.cache_clear()
    assert (failed.value.reason, failed.value.status) == ("unsupported: pdf needs pypdfium2", "skipped")


LOADED = """
import sys
from rag_core.parsing.document import parse
from rag_core.parsing.formats import recipe_part
recipe_part("a.unknown")
parse("a.md", b"# words", False, 1.0, 1.0)
libraries = {"lxml", "pypdfium2", "html_to_markdown", "olefile", "python_calamine", "charset_normalizer"}
print(*sorted(libraries & set(sys.modules)))
"""


def test_a_run_over_markdown_loads_no_library_of_another_format() -> None:
    process = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=False)
    assert (process.stdout.strip(), process.stderr) == ("", "")


def test_recipes_differ_by_format_and_only_by_format() -> None:
    recipes = [recipe_part(uri) for uri in ("a.md", "a.html", "a.txt", "a.pdf", "a.docx", "a.xyz")]
    assert len(set(recipes)) == 6
    assert recipe_part("x/b.MARKDOWN.gz") == recipes[0]
    assert recipe_part("README") == recipes[5]
    assert ["html-to-markdown" in recipe for recipe in recipes] == [True, True, False, False, False, True]
    assert ["pypdfium2" in recipe for recipe in recipes] == [False, False, False, True, False, True]


def test_a_recipe_depends_on_whether_libreoffice_is_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    formats._format_recipe.cache_clear()
    before = recipe_part("a.doc"), recipe_part("a.docx")
    (tmp_path / "soffice").write_text("#!/bin/sh\n")
    (tmp_path / "soffice").chmod(0o755)
    formats._format_recipe.cache_clear()
    after = recipe_part("a.doc"), recipe_part("a.docx")
    formats._format_recipe.cache_clear()
    assert (before[0] != after[0], before[1] != after[1]) == (True, False)


@pytest.mark.parametrize(("uri", "suffix"), [("a.b/c", ""), ("a/.bashrc", ""), ("a/b.tar.GZ", ".gz")])
def test_the_suffix_is_that_of_the_name(uri: str, suffix: str) -> None:
    assert suffix_of(uri) == suffix
