"""XML from outside: nothing is fetched, no entity grows."""

from collections.abc import Iterator
from typing import TypeAlias

from lxml import etree

from rag_core.errors import DocumentError

Element: TypeAlias = etree._Element

_LONGEST_REASON = 200


def parsed(content: bytes) -> Element:
    """At most 256 levels deep, without the entities that a document defines. DocumentError if it is no XML."""
    parser = etree.XMLParser(
        resolve_entities=False,
        no_network=True,
        huge_tree=False,
        load_dtd=False,
        remove_comments=True,
        remove_pis=True,
    )
    try:
        root = etree.fromstring(content, parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise DocumentError("parse", f"damaged XML: {str(error)[:_LONGEST_REASON]}") from error
    if root.getroottree().docinfo.internalDTD is not None:
        etree.strip_elements(root, etree.Entity, with_tail=False)
    return root


def elements(parent: Element) -> Iterator[Element]:
    return parent.iterchildren("*")


def spoken(element: Element | None) -> str:
    """All text in it, on one line."""
    return "" if element is None else " ".join("".join(element.itertext()).split())
