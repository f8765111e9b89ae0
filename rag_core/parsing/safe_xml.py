"""Parsing of untrusted XML: nothing is fetched, and no entity can grow a document."""

from collections.abc import Iterator
from typing import TypeAlias

from lxml import etree

from rag_core.errors import DocumentError

Element: TypeAlias = etree._Element

MAX_DEPTH = 256
"""Levels of nesting that libxml2 accepts."""

_MAX_REASON_CHARS = 200


def parse_xml(content: bytes) -> Element:
    """The root element, without the entities that the document defines.

    Raises DocumentError if the content is not XML or is nested more than 256 levels deep.
    """
    try:
        root = etree.fromstring(content, build_parser())
    except (etree.XMLSyntaxError, ValueError) as error:
        raise DocumentError("parse", _describe_error(error)) from error
    return strip_entities(root)


def _describe_error(error: etree.XMLSyntaxError | ValueError) -> str:
    message = (error.msg if isinstance(error, etree.XMLSyntaxError) else str(error)) or "no reason given"
    if message.startswith("Excessive depth"):
        return f"XML elements nested more than {MAX_DEPTH} deep"
    return f"damaged XML: {message[:_MAX_REASON_CHARS]}"


def build_parser(*, recover: bool = False) -> "etree.XMLParser[Element]":
    """A parser that fetches nothing and keeps libxml2's limits. With `recover` it continues after an error."""
    return etree.XMLParser(
        resolve_entities=False,
        no_network=True,
        huge_tree=False,
        load_dtd=False,
        remove_comments=True,
        remove_pis=True,
        recover=recover,
    )


def strip_entities(root: Element) -> Element:
    """The same element without references to the entities that its document defines."""
    if root.getroottree().docinfo.internalDTD is not None:
        etree.strip_elements(root, etree.Entity, with_tail=False)
    return root


def child_elements(parent: Element) -> Iterator[Element]:
    return parent.iterchildren("*")


def element_text(element: Element | None) -> str:
    """All text in the element, on one line."""
    return "" if element is None else " ".join("".join(element.itertext()).split())
