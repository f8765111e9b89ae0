"""One document from slides."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import accumulate

from rag_core.parsing.blocks import Block, heading, join_blocks
from rag_core.parsing.outline import with_outline
from rag_core.types import Document, Section

_TITLE_LEVEL = 2


def with_slides(document: Document, slides: Iterable[tuple[str, Iterable[Block]]]) -> Document:
    """The document with the text of the slides, each given by its title and its blocks.

    Each slide is a section and a page; the section of a slide without a title has an empty path. The first title
    becomes the document's title if the document has none.
    """
    titled = [(title, list(blocks)) for title, blocks in slides]
    texts = [join_blocks([heading(_TITLE_LEVEL, title), *blocks]) for title, blocks in titled]
    starts = tuple(accumulate((len(text) + 1 for text in texts[:-1]), initial=0)) if texts else ()
    first_title = next((title for title, _ in titled if title), "")
    outlined = with_outline(replace(document, text="\n".join(texts)))
    untitled = [Section(path=(), start=start) for start, (title, _) in zip(starts, titled, strict=True) if not title]
    sections = sorted((*outlined.sections, *untitled), key=lambda section: section.start)
    return replace(outlined, title=document.title or first_title, sections=tuple(sections), pages=starts)
