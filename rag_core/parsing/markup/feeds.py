"""Feeds: RSS, RDF and Atom by entry, and the outlines of OPML."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from lxml import etree

from rag_core.parsing.blocks import Block, heading, join_blocks, list_item, paragraph
from rag_core.parsing.markup.html import convert_html
from rag_core.parsing.outline import with_outline
from rag_core.parsing.safe_xml import Element, child_elements, element_text
from rag_core.types import Document

_MEDIA_TYPES = {"rss": "rss", "RDF": "rss", "feed": "atom", "opml": "x-opml"}
_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_HEADING = re.compile(r"^#{1,6}[ \t]+", re.MULTILINE)
_CONTENTS = ("encoded", "content", "description", "summary")
_DATES = ("pubDate", "published", "issued", "date", "updated")
_MAX_LEVEL = 6


@dataclass(frozen=True, slots=True)
class FeedEntry:
    """`date` is in ISO 8601 if it could be read, else as it was written. `text` is Markdown."""

    title: str
    date: str
    link: str
    text: str


def parse_feed(uri: str, root: Element) -> Document | None:
    """None if the root element is not one of a feed."""
    name = _local_name(root)
    if name not in _MEDIA_TYPES:
        return None
    head = next((child for child in child_elements(root) if _local_name(child) in ("channel", "head")), root)
    title = element_text(_first_child(head, ("title",)))
    media_type = f"{'text' if name == 'opml' else 'application'}/{_MEDIA_TYPES[name]}{'' if name == 'opml' else '+xml'}"
    body = _outlines(root) if name == "opml" else _entries(root)
    subtitle = element_text(_first_child(head, ("description", "subtitle")))
    text = join_blocks([heading(1, title), paragraph(subtitle), *body])
    return with_outline(Document(uri=uri, text=text, title=title, media_type=media_type))


def _entries(root: Element) -> Iterator[Block]:
    for element in root.iter("{*}item", "{*}entry"):
        entry = _parse_entry(element)
        yield heading(2, entry.title)
        yield paragraph(" ".join(filter(None, (entry.date, entry.link))))
        yield Block(entry.text)


def _parse_entry(element: Element) -> FeedEntry:
    link = _first_child(element, ("link",))
    content = _first_child(element, _CONTENTS)
    return FeedEntry(
        title=" ".join(convert_html(element_text(_first_child(element, ("title",)))).split()),
        date=_iso_date(element_text(_first_child(element, _DATES))),
        link="" if link is None else link.get("href", "") or element_text(link),
        text=_HEADING.sub("", convert_html("" if content is None else _markup(content))).strip(),
    )


def _markup(content: Element) -> str:
    """Atom's XHTML has elements; HTML of other feeds is text."""
    if len(content):
        return etree.tostring(content, encoding="unicode", method="html", with_tail=False)
    return "".join(content.itertext())


def _outlines(root: Element) -> Iterator[Block]:
    body = _first_child(root, ("body",))
    yield from () if body is None else _outline_items(body, 0)


def _outline_items(parent: Element, level: int) -> Iterator[Block]:
    for outline in child_elements(parent):
        text = outline.get("text", "") or outline.get("title", "")
        link = outline.get("xmlUrl", "") or outline.get("htmlUrl", "") or outline.get("url", "")
        yield list_item(" ".join(filter(None, (text, outline.get("created", ""), link))), level=min(level, _MAX_LEVEL))
        yield from _outline_items(outline, level + 1)


def _iso_date(text: str) -> str:
    if match := _ISO_DATE.match(text):
        return match[0]
    try:
        return parsedate_to_datetime(text).date().isoformat()
    except ValueError:
        return text


def _first_child(element: Element, names: tuple[str, ...]) -> Element | None:
    """The child with the first of the names that occurs, whatever its namespace."""
    children = {_local_name(child): child for child in reversed([*child_elements(element)])}
    return next((children[name] for name in names if name in children), None)


def _local_name(element: Element) -> str:
    return str(element.tag).rpartition("}")[2]
