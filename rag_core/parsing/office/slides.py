"""PPTX: each slide a section and a page, with its tables, charts, alternative texts, comments and speaker notes."""

from collections.abc import Iterator, Mapping

from rag_core.errors import DocumentError
from rag_core.parsing.archive import open_archive
from rag_core.parsing.blocks import Block, comment, paragraph
from rag_core.parsing.office.drawings import DRAWING, alternative_text, graphic_blocks, text_blocks
from rag_core.parsing.office.packages import (
    COMPATIBILITY,
    RELATIONSHIP,
    Part,
    first_choice,
    main_part,
    with_core_properties,
)
from rag_core.parsing.pages import with_slides
from rag_core.parsing.safe_xml import Element, child_elements, element_text
from rag_core.types import Document

VERSION = 4

_MEDIA_TYPE = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
_SLIDE = "{http://schemas.openxmlformats.org/presentationml/2006/main}"
_TITLE_ROLES = ("title", "ctrTitle")
_LIST_ROLES = ("body", "obj")
_FURNITURE_ROLES = ("ftr", "sldNum", "dt", "hdr", "sldImg")


class SlidesParser:
    def parse(self, uri: str, body: bytes) -> Document:
        archive = open_archive(body)
        presentation = main_part(archive, "ppt")
        document = with_core_properties(Document(uri=uri, text="", media_type=_MEDIA_TYPE), archive)
        try:
            author_parts = (*presentation.find_parts("commentAuthors"), *presentation.find_parts("authors"))
            elements = [element for part in author_parts for element in child_elements(part.root)]
            authors = {element.get("id", ""): element.get("name", "") for element in elements}
            ids = presentation.root.iterfind(f"{_SLIDE}sldIdLst/{_SLIDE}sldId")
            slides = (presentation.find_part(id.get(f"{RELATIONSHIP}id", "")) for id in ids)
            return with_slides(document, (_read_slide(slide, authors) for slide in slides if slide is not None))
        except RecursionError as error:
            raise DocumentError("parse", "elements nested too deep") from error


def _read_slide(slide: Part, authors: Mapping[str, str]) -> tuple[str, list[Block]]:
    """The title of a slide, and its other blocks: shapes, then comments, then speaker notes.

    A hidden slide is an empty page, so that the slides after it keep their numbers.
    """
    if slide.root.get("show") in ("0", "false"):
        return "", []
    bodies = [shape.find(f"{_SLIDE}txBody") for shape in _find_shapes(slide) if _role(shape) in _TITLE_ROLES]
    title = " ".join(block.text for body in bodies if body is not None for block in text_blocks(body))
    shapes = [shape for shape in _find_shapes(slide) if _role(shape) not in (*_TITLE_ROLES, *_FURNITURE_ROLES)]
    blocks = [block for shape in shapes for block in _shape_blocks(shape, slide)]
    for part in slide.find_parts("comments"):
        # Classic comments are `cm` with a date `dt`, threaded ones `cm` and `reply` with a date `created`
        for element in part.root.iter("{*}cm", "{*}reply"):
            texts = (child for child in child_elements(element) if str(child.tag).endswith(("}text", "}txBody")))
            author = authors.get(element.get("authorId", ""), "")
            date = element.get("dt", "") or element.get("created", "")
            blocks.append(comment(author, element_text(next(texts, None)), date))
    for notes in slide.find_parts("notesSlide"):
        shapes = [shape for shape in _find_shapes(notes) if _role(shape) not in _FURNITURE_ROLES]
        spoken = [block for shape in shapes for block in _shape_blocks(shape, notes) if block.text]
        blocks += [paragraph("Speaker notes:"), *spoken] if spoken else []
    return " ".join(title.split()), blocks


def _find_shapes(slide: Part) -> Iterator[Element]:
    for tree in slide.root.iterfind(f"{_SLIDE}cSld/{_SLIDE}spTree"):
        yield from _leaf_shapes(tree)


def _leaf_shapes(group: Element) -> Iterator[Element]:
    """Yields the shapes of a group and of the groups in it, from the bottom to the top layer."""
    for child in child_elements(group):
        if child.tag == f"{_SLIDE}grpSp":
            yield from _leaf_shapes(child)
        elif child.tag == f"{COMPATIBILITY}AlternateContent":
            for choice in first_choice(child):
                yield from _leaf_shapes(choice)
        else:
            yield child


def _role(shape: Element) -> str:
    """The role of a shape in the slide's layout, such as title or body; empty for a free drawing."""
    placeholder = next(shape.iter(f"{_SLIDE}ph"), None)
    return "" if placeholder is None else placeholder.get("type", "obj")


def _shape_blocks(shape: Element, slide: Part) -> Iterator[Block]:
    for properties in shape.iter(f"{_SLIDE}cNvPr"):
        yield paragraph(alternative_text(properties.get("descr", "")))
    for body in shape.iterchildren(f"{_SLIDE}txBody"):
        line_count = sum(1 for line in body.iterchildren(f"{DRAWING}p") if element_text(line))
        yield from text_blocks(body, is_list=line_count > 1 and _role(shape) in _LIST_ROLES)
    for element in shape.iter():
        yield from graphic_blocks(element, slide)
