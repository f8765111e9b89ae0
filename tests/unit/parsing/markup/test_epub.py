import pytest
from zips import zip_bytes

from rag_core.errors import DocumentError
from rag_core.parsing.markup.epub import EpubParser
from rag_core.types import Document

CONTAINER = (
    '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
    '<rootfile full-path="OPS/book%20of.opf"/></rootfiles></container>'
)
METADATA = (
    "<dc:title>Das Buch</dc:title><dc:title>Untertitel</dc:title><dc:creator>Eva</dc:creator>"
    "<dc:creator>Bo</dc:creator>"
    "<dc:language>de-DE</dc:language><dc:date>2020</dc:date><dc:subject>a</dc:subject><dc:subject>b</dc:subject>"
    "<dc:description>&lt;p&gt;Ein &lt;i&gt;Buch&lt;/i&gt;&lt;/p&gt;</dc:description>"
)


def epub(chapters: dict[str, str], spine: tuple[str, ...], old_contents: str = "", **files: str) -> bytes:
    names = {"nav.xhtml": "<nav>Contents</nav>", **chapters}
    manifest = "".join(
        f'<item id="{name}" href="text/{name}" media-type="application/xhtml+xml" '
        f'properties="{"nav" if name == "nav.xhtml" else ""}"/>'
        for name in names
    )
    manifest += '<item id="ncx" href="toc.ncx" media-type="application/x-dtbncx+xml"/>' if old_contents else ""
    order = "".join(f'<itemref idref="{name}"/>' for name in spine)
    package = (
        '<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/">'
        f"<metadata>{METADATA}</metadata><manifest>{manifest}</manifest><spine>{order}</spine></package>"
    )
    return zip_bytes(
        {
            "META-INF/container.xml": CONTAINER,
            "OPS/book of.opf": package,
            "OPS/toc.ncx": old_contents,
            **{f"OPS/text/{name}": page for name, page in names.items()},
            **{f"META-INF/{name}.xml": content for name, content in files.items()},
        }
    )


def parse(*chapters: str) -> Document:
    names = {f"{number}.xhtml": page for number, page in enumerate(chapters)}
    return EpubParser().parse("file:///a.epub", epub(names, tuple(names)))


def test_chapters_are_in_the_order_of_the_spine() -> None:
    pages = {"a.xhtml": "<html><h2>Two</h2><p>b</p></html>", "b.xhtml": "<html><h1>One</h1><p>a</p></html>"}
    body = epub(pages, ("nav.xhtml", "b.xhtml", "a.xhtml", "b.xhtml", "missing"))
    document = EpubParser().parse("file:///a.epub", body)
    assert document.text == "# One\n\na\n\n## Two\n\nb\n"
    assert [section.path for section in document.sections] == [("One",), ("One", "Two")]


CONTENTS = (
    '<html xmlns:epub="http://www.idpf.org/2007/ops"><nav epub:type="landmarks"><a href="a.xhtml">Start</a></nav>'
    '<nav epub:type="toc"><ol><li><a href="a.xhtml">A</a><a href="http://[x">Web</a>'
    '<ol><li><a href="a%20b.xhtml#x">The <i>second</i></a></li>'
    '<li><a href="a%20b.xhtml#y">Later</a></li></ol></li></ol></nav></html>'
)
OLD_CONTENTS = (
    '<ncx><navPoint><navLabel><text>A</text></navLabel><content src="text/a.xhtml"/><navPoint><navLabel>'
    '<text>The second</text></navLabel><content src="text/a b.xhtml#x"/></navPoint></navPoint></ncx>'
)


@pytest.mark.parametrize(
    ("nav", "old"), [(CONTENTS, ""), ("<nav>&nbsp;</nav>", OLD_CONTENTS), ("<nav/>", OLD_CONTENTS)]
)
def test_a_chapter_without_a_heading_has_that_of_the_table_of_contents(nav: str, old: str) -> None:
    pages = {"a.xhtml": "<h1>One</h1><p>a</p>", "a b.xhtml": "<p>b</p>", "c.xhtml": "<p>c</p>", "nav.xhtml": nav}
    document = EpubParser().parse("file:///a.epub", epub(pages, ("a.xhtml", "a b.xhtml", "c.xhtml"), old))
    assert document.text == "# One\n\na\n\n## The second\n\nb\n\nc\n"


def test_the_package_gives_title_language_and_metadata() -> None:
    document = parse("<html><p>a</p></html>")
    assert (document.title, document.language, document.media_type) == ("Das Buch", "de-DE", "application/epub+zip")
    assert document.metadata == {"author": "Eva; Bo", "date": "2020", "description": "Ein Buch", "tags": ["a", "b"]}


def test_elements_that_xhtml_closes_at_once_do_not_swallow_the_chapter() -> None:
    page = '<html><head><title/><script src="x"/></head><body><p>a<br/>b</p><a id="x"/><p>c</p></body></html>'
    assert parse(page).text.split() == ["a", "b", "c"]


def test_fonts_can_be_obfuscated_but_chapters_cannot() -> None:
    rights = '<encryption><EncryptedData><EncryptionMethod Algorithm="{}"/></EncryptedData></encryption>'
    page = {"a.xhtml": "<p>text</p>"}
    fonts = epub(page, ("a.xhtml",), encryption=rights.format("http://www.idpf.org/2008/embedding"))
    assert EpubParser().parse("a.epub", fonts).text == "text\n"
    locked = epub(page, ("a.xhtml",), encryption=rights.format("http://www.w3.org/2001/04/xmlenc#aes128-cbc"))
    with pytest.raises(DocumentError, match="password protected"):
        EpubParser().parse("a.epub", locked)


def test_a_zip_that_is_not_a_book_is_damaged() -> None:
    with pytest.raises(DocumentError, match=r"damaged archive: no META-INF/container\.xml"):
        EpubParser().parse("a.epub", zip_bytes({"a": "b"}))
