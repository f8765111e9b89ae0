"""Slides to one document."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import accumulate

from rag_core.parsing.blocks import Block, heading, joined
from rag_core.parsing.outline import outlined
from rag_core.types import Document, Section

_HEADING = 2


def paged(document: Document, slides: Iterable[tuple[str, Iterable[Block]]]) -> Document:
    """Each slide, given by its title and its blocks, is a section and a page; without a title, its section has no path.
    The first title is the document's where it has none.
    """
    titled = [(title, list(blocks)) for title, blocks in slides]
    texts = [joined([heading(_HEADING, title), *blocks]) for title, blocks in titled]
    starts = tuple(accumulate((len(text) + 1 for text in texts[:-1]), initial=0)) if texts else ()
    first = next((title for title, _ in titled if title), "")
    known = outlined(replace(document, text="\n".join(texts)))
    untitled = [Section(path=(), start=start) for start, (title, _) in zip(starts, titled, strict=True) if not title]
    sections = sorted((*known.sections, *untitled), key=lambda section: section.start)
    return replace(known, title=document.title or first, sections=tuple(sections), pages=starts)
