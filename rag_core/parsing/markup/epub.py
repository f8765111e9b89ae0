"""EPUB books: the chapters in reading order, each parsed by the HTML parser."""

import posixpath
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from urllib.parse import unquote

from rag_core.errors import DocumentError
from rag_core.parsing.archive import Archive, open_archive
from rag_core.parsing.blocks import Block, clean_text, heading, join_blocks
from rag_core.parsing.markup.html import HtmlParser
from rag_core.parsing.outline import with_outline
from rag_core.parsing.safe_xml import Element, element_text, parse_xml
from rag_core.types import Document, Value

VERSION = 2

_MEDIA_TYPE = "application/epub+zip"
_CONTAINER = "META-INF/container.xml"
_ENCRYPTION = "META-INF/encryption.xml"
_NCX = "application/x-dtbncx+xml"
_TYPE = "{http://www.idpf.org/2007/ops}type"
_DC = "{http://purl.org/dc/elements/1.1/}"
_CHAPTER_TYPES = ("application/xhtml+xml", "text/html", "application/x-dtbook+xml")
_FONT_ALGORITHMS = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC")
# XHTML can close any element at once; an HTML parser would leave such a title or script open to the end of the page
_SELF_CLOSED = re.compile(rb"<(?!(?:area|base|br|col|hr|img|input|link|meta|wbr)\b)([A-Za-z][\w:-]*)(\s[^<>]*)?/>")
_TAG = re.compile(r"<[^<>]{1,200}>")


class EpubParser:
    def parse(self, uri: str, body: bytes) -> Document:
        archive = open_archive(body)
        if _ENCRYPTION in archive:  # fonts can be encrypted, chapters cannot
            methods = parse_xml(archive.read(_ENCRYPTION)).iter("{*}EncryptionMethod")
            if any(method.get("Algorithm") not in _FONT_ALGORITHMS for method in methods):
                raise DocumentError("parse", "password protected")
        roots = parse_xml(archive.read(_CONTAINER)).iter("{*}rootfile")
        package_name = next((unquote(root.get("full-path", "")) for root in roots), "")
        package = parse_xml(archive.read(package_name))
        chapters = _parse_chapters(archive, package, posixpath.dirname(package_name))
        text = join_blocks(Block(chapter) for chapter in chapters)
        return with_outline(_with_metadata(Document(uri=uri, text=text, media_type=_MEDIA_TYPE), package))


def _parse_chapters(archive: Archive, package: Element, folder: str) -> Iterator[str]:
    """The text of each chapter in reading order, without the table of contents.

    A chapter without a heading gets its title from the table of contents: else it would belong to the chapter before.
    """
    items = {item.get("id", ""): item for item in package.iterfind("{*}manifest/{*}item")}
    names: dict[str, None] = {}
    for reference in package.iterfind("{*}spine/{*}itemref"):
        item = items.get(reference.get("idref", ""))
        if item is None or item.get("media-type") not in _CHAPTER_TYPES or "nav" in item.get("properties", "").split():
            continue
        names[_entry_name(folder, item.get("href", ""))] = None
    parser, titles = HtmlParser(), _contents_titles(archive, package, folder)
    for name in names:
        if name in archive:
            page = _SELF_CLOSED.sub(rb"<\1\2></\1>", archive.read(name))
            chapter = parser.parse(name, page)
            title = Block("") if chapter.sections else titles.get(name, Block(""))
            yield join_blocks([title, Block(chapter.text.strip())]).rstrip()


def _contents_titles(archive: Archive, package: Element, folder: str) -> dict[str, Block]:
    """Headings by the names of their chapters, from the tables of contents of EPUB 3 and EPUB 2."""
    titles: dict[str, Block] = {}
    for item in package.iterfind("{*}manifest/{*}item"):
        name = _entry_name(folder, item.get("href", ""))
        is_epub3 = "nav" in item.get("properties", "").split()
        if is_epub3 or item.get("media-type") == _NCX:
            with suppress(DocumentError):
                for link, title in _contents_links(parse_xml(archive.read(name)), is_epub3):
                    titles.setdefault(_entry_name(posixpath.dirname(name), link), title)
    return titles


def _contents_links(root: Element, is_epub3: bool) -> Iterator[tuple[str, Block]]:
    if is_epub3:
        tables = (nav for nav in root.iter("{*}nav") if "toc" in nav.get(_TYPE, "").split())
        for link in (link for table in tables for link in table.iter("{*}a")):
            depth = sum(1 for _ in link.iterancestors("{*}ol"))
            yield link.get("href", ""), heading(max(depth, 1), element_text(link))
    else:
        for point in root.iter("{*}navPoint"):
            level = 1 + sum(1 for _ in point.iterancestors("{*}navPoint"))
            for content in point.iterchildren("{*}content"):
                yield content.get("src", ""), heading(level, element_text(point.find("{*}navLabel")))


def _entry_name(folder: str, link: str) -> str:
    """The name in the archive of the file that a link leads to."""
    return posixpath.normpath(posixpath.join(folder, unquote(link.partition("#")[0])))


def _with_metadata(document: Document, package: Element) -> Document:
    """The document with the Dublin Core metadata of the package. The first element of a name counts."""
    pairs = [
        (str(element.tag).removeprefix(_DC), clean_text(element_text(element)))
        for metadata in package.iterfind("{*}metadata")
        for element in metadata.iter(f"{_DC}*")
    ]
    first_values = {key: text for key, text in reversed(pairs) if text}
    metadata: dict[str, Value] = {
        "author": "; ".join(text for key, text in pairs if key == "creator" and text),
        "date": first_values.get("date", ""),
        "description": " ".join(_TAG.sub(" ", first_values.get("description", "")).split()),
        "tags": [text for key, text in pairs if key == "subject" and text],
        "publisher": first_values.get("publisher", ""),
    }
    return replace(
        document,
        title=first_values.get("title", ""),
        language=first_values.get("language", ""),
        metadata={key: value for key, value in metadata.items() if value},
    )
