"""Slides to one document."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import accumulate

from rag_core.ingestion.parsing.blocks import Block, heading, joined
from rag_core.ingestion.parsing.markdown import outlined
from rag_core.types import Document

_HEADING = 2


def paged(document: Document, slides: Iterable[tuple[str, Iterable[Block]]]) -> Document:
    """Each slide, given by its title and its blocks, is a section and a page. The first title is the document's where
    it has none.
    """
    titled = [(title, list(blocks)) for title, blocks in slides]
    texts = [
        joined([heading(_HEADING, title or f"Slide {number}"), *blocks])
        for number, (title, blocks) in enumerate(titled, 1)
    ]
    starts = accumulate((len(text) + 1 for text in texts[:-1]), initial=0) if texts else ()
    first = next((title for title, _ in titled if title), "")
    known = outlined(replace(document, text="\n".join(texts)))
    return replace(known, title=document.title or first, pages=tuple(starts))
