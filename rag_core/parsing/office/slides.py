"""Slides: each a section and a page, with its tables, charts, alternative texts, comments and speaker notes."""

from collections.abc import Iterable, Iterator, Mapping

from rag_core.errors import DocumentError
from rag_core.parsing.archive import opened
from rag_core.parsing.blocks import Block, comment, paragraph
from rag_core.parsing.office.drawings import DRAWING, alternative, graphic_blocks, text_blocks
from rag_core.parsing.office.packages import COMPATIBILITY, RELATIONSHIP, Part, chosen, described, main_part
from rag_core.parsing.pages import paged
from rag_core.parsing.safe_xml import Element, elements, spoken
from rag_core.types import Document

VERSION = 4

_MEDIA_TYPE = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
_SLIDE = "{http://schemas.openxmlformats.org/presentationml/2006/main}"
_TITLES = ("title", "ctrTitle")
_LISTS = ("body", "obj")
_FURNITURE = ("ftr", "sldNum", "dt", "hdr", "sldImg")


class SlidesParser:
    def parse(self, uri: str, body: bytes) -> Document:
        archive = opened(body)
        part = main_part(archive, "ppt")
        document = described(Document(uri=uri, text="", media_type=_MEDIA_TYPE), archive)
        try:
            authors = _authors(part)
            return paged(document, (_told(slide, authors) for slide in _slides(part)))
        except RecursionError as error:
            raise DocumentError("parse", "elements nested too deep") from error


def _slides(part: Part) -> Iterator[Part]:
    for each in part.root.iterfind(f"{_SLIDE}sldIdLst/{_SLIDE}sldId"):
        slide = part.named(each.get(f"{RELATIONSHIP}id", ""))
        if slide is not None:
            yield slide


def _told(slide: Part, authors: Mapping[str, str]) -> tuple[str, Iterable[Block]]:
    """Nothing of a hidden one but its page, so that those behind it keep their numbers."""
    if slide.root.get("show") in ("0", "false"):
        return "", ()
    return _title(slide), _blocks(slide, authors)


def _title(slide: Part) -> str:
    bodies = [shape.find(f"{_SLIDE}txBody") for shape in _shapes(slide) if _role(shape) in _TITLES]
    blocks = [block for body in bodies if body is not None for block in text_blocks(body)]
    return " ".join(" ".join(block.text for block in blocks).split())


def _blocks(slide: Part, authors: Mapping[str, str]) -> Iterator[Block]:
    for shape in _shapes(slide):
        if _role(shape) not in (*_TITLES, *_FURNITURE):
            yield from _shape_blocks(shape, slide)
    yield from _comments(slide, authors)
    for notes in slide.related("notesSlide"):
        yield from _notes(notes)


def _shapes(slide: Part) -> Iterator[Element]:
    for tree in slide.root.iterfind(f"{_SLIDE}cSld/{_SLIDE}spTree"):
        yield from _leaves(tree)


def _leaves(group: Element) -> Iterator[Element]:
    """The shapes of a group and of the groups within it, as they were laid on each other."""
    for child in elements(group):
        if child.tag == f"{_SLIDE}grpSp":
            yield from _leaves(child)
        elif child.tag == f"{COMPATIBILITY}AlternateContent":
            for choice in chosen(child):
                yield from _leaves(choice)
        else:
            yield child


def _role(shape: Element) -> str:
    """What the layout has the shape for; empty for one that was drawn freely."""
    place = next(shape.iter(f"{_SLIDE}ph"), None)
    return "" if place is None else place.get("type", "obj")


def _shape_blocks(shape: Element, slide: Part) -> Iterator[Block]:
    for known in shape.iter(f"{_SLIDE}cNvPr"):
        yield paragraph(alternative(known.get("descr", "")))
    for body in shape.iterchildren(f"{_SLIDE}txBody"):
        several = sum(1 for each in body.iterchildren(f"{DRAWING}p") if spoken(each)) > 1
        yield from text_blocks(body, is_list=several and _role(shape) in _LISTS)
    for element in shape.iter():
        yield from graphic_blocks(element, slide)


def _notes(part: Part) -> Iterator[Block]:
    spoken_notes = [shape for shape in _shapes(part) if _role(shape) not in _FURNITURE]
    blocks = [block for shape in spoken_notes for block in _shape_blocks(shape, part) if block.text]
    if blocks:
        yield paragraph("Speaker notes:")
        yield from blocks


def _comments(slide: Part, authors: Mapping[str, str]) -> Iterator[Block]:
    """Those of old, and those in threads."""
    for part in slide.related("comments"):
        for each in part.root.iter("{*}cm", "{*}reply"):
            said = next((child for child in elements(each) if str(child.tag).endswith(("}text", "}txBody"))), None)
            date = each.get("dt", "") or each.get("created", "")
            yield comment(authors.get(each.get("authorId", ""), ""), spoken(said), date)


def _authors(part: Part) -> dict[str, str]:
    """Names by id, which the presentation holds for all slides."""
    parts = (*part.related("commentAuthors"), *part.related("authors"))
    return {each.get("id", ""): each.get("name", "") for part in parts for each in elements(part.root)}
