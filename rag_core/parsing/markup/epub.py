"""Books: the chapters in the order in which they are read, each as the HTML parser reads it."""

import posixpath
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from urllib.parse import unquote

from rag_core.errors import DocumentError
from rag_core.parsing.archive import Archive, opened
from rag_core.parsing.blocks import Block, clean, heading, joined
from rag_core.parsing.markup.html import PACKAGE as PACKAGE
from rag_core.parsing.markup.html import HtmlParser
from rag_core.parsing.outline import outlined
from rag_core.parsing.safe_xml import Element, parsed, spoken
from rag_core.types import Document, Value

VERSION = 2

_MEDIA_TYPE = "application/epub+zip"
_CONTAINER = "META-INF/container.xml"
_RIGHTS = "META-INF/encryption.xml"
_OLD_CONTENTS = "application/x-dtbncx+xml"
_TYPE = "{http://www.idpf.org/2007/ops}type"
_DC = "{http://purl.org/dc/elements/1.1/}"
_CHAPTERS = ("application/xhtml+xml", "text/html", "application/x-dtbook+xml")
_FONTS = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC")
# XHTML may close any element at once; to an HTML parser that leaves a title or a script open to the end
_SELF_CLOSED = re.compile(rb"<(?!(?:area|base|br|col|hr|img|input|link|meta|wbr)\b)([A-Za-z][\w:-]*)(\s[^<>]*)?/>")
_TAG = re.compile(r"<[^<>]{1,200}>")


class EpubParser:
    def parse(self, uri: str, body: bytes) -> Document:
        archive = opened(body)
        _refuse_rights(archive)
        name = _package_name(archive)
        package = parsed(archive.read(name))
        text = joined(Block(chapter) for chapter in _chapters(archive, package, posixpath.dirname(name)))
        return outlined(_described(Document(uri=uri, text=text, media_type=_MEDIA_TYPE), package))


def _refuse_rights(archive: Archive) -> None:
    """Fonts may be obfuscated; chapters may not."""
    if _RIGHTS not in archive:
        return
    methods = parsed(archive.read(_RIGHTS)).iter("{*}EncryptionMethod")
    if any(each.get("Algorithm") not in _FONTS for each in methods):
        raise DocumentError("parse", "password protected")


def _package_name(archive: Archive) -> str:
    roots = parsed(archive.read(_CONTAINER)).iter("{*}rootfile")
    return next((unquote(each.get("full-path", "")) for each in roots), "")


def _chapters(archive: Archive, package: Element, folder: str) -> Iterator[str]:
    """One without a heading has the one that the table of contents gives it: else it would belong to the one before."""
    parser, contents = HtmlParser(), _contents(archive, package, folder)
    for name in _spine(package, folder):
        if name in archive:
            page = _SELF_CLOSED.sub(rb"<\1\2></\1>", archive.read(name))
            chapter = parser.parse(name, page)
            title = Block("") if chapter.sections else contents.get(name, Block(""))
            yield joined([title, Block(chapter.text.strip())]).rstrip()


def _contents(archive: Archive, package: Element, folder: str) -> dict[str, Block]:
    """Headings by the names of the chapters that they lead to, from the tables of EPUB 3 and of EPUB 2."""
    titles: dict[str, Block] = {}
    for file in package.iterfind("{*}manifest/{*}item"):
        name = _name(folder, file.get("href", ""))
        with suppress(DocumentError):
            if "nav" in file.get("properties", "").split():
                entries = _entries(parsed(archive.read(name)))
            elif file.get("media-type") == _OLD_CONTENTS:
                entries = _old_entries(parsed(archive.read(name)))
            else:
                continue
            for link, title in entries:
                titles.setdefault(_name(posixpath.dirname(name), link), title)
    return titles


def _entries(root: Element) -> Iterator[tuple[str, Block]]:
    for nav in root.iter("{*}nav"):
        if "toc" in nav.get(_TYPE, "").split():
            for link in nav.iter("{*}a"):
                depth = sum(1 for _ in link.iterancestors("{*}ol"))
                yield link.get("href", ""), heading(max(depth, 1), spoken(link))


def _old_entries(root: Element) -> Iterator[tuple[str, Block]]:
    for point in root.iter("{*}navPoint"):
        level = 1 + sum(1 for _ in point.iterancestors("{*}navPoint"))
        for content in point.iterchildren("{*}content"):
            yield content.get("src", ""), heading(level, spoken(point.find("{*}navLabel")))


def _name(folder: str, link: str) -> str:
    """In the archive."""
    return posixpath.normpath(posixpath.join(folder, unquote(link.partition("#")[0])))


def _spine(package: Element, folder: str) -> Iterator[str]:
    """The chapters' names in the archive, each once, without the table of contents."""
    files = {each.get("id", ""): each for each in package.iterfind("{*}manifest/{*}item")}
    told = set[str]()
    for reference in package.iterfind("{*}spine/{*}itemref"):
        file = files.get(reference.get("idref", ""))
        if file is None or file.get("media-type") not in _CHAPTERS or "nav" in file.get("properties", "").split():
            continue
        name = _name(folder, file.get("href", ""))
        if name not in told:
            told.add(name)
            yield name


def _described(document: Document, package: Element) -> Document:
    said = [
        (str(each.tag).removeprefix(_DC), clean(spoken(each)))
        for metadata in package.iterfind("{*}metadata")
        for each in metadata.iter(f"{_DC}*")
    ]
    known = {key: text for key, text in reversed(said) if text}
    metadata: dict[str, Value] = {
        "author": "; ".join(text for key, text in said if key == "creator" and text),
        "date": known.get("date", ""),
        "description": " ".join(_TAG.sub(" ", known.get("description", "")).split()),
        "tags": [text for key, text in said if key == "subject" and text],
        "publisher": known.get("publisher", ""),
    }
    return replace(
        document,
        title=known.get("title", ""),
        language=known.get("language", ""),
        metadata={key: value for key, value in metadata.items() if value},
    )
