"""The boundaries of chunks on the text of their document."""

from collections.abc import Sequence
from itertools import pairwise

from markupsafe import Markup

from rag_core.notebook.view import View
from rag_core.types import Chunk

COLOURS = ("#dceefb", "#fdebd0")
SHARED_COLOUR = "#e3d4ee"


def show_chunks(text: str, chunks: Sequence[Chunk]) -> View:
    """Shows the text with one background per chunk. A third one marks text that several chunks share.

    Text that belongs to no chunk has no background. The number before a chunk is its ordinal.
    """
    borders = sorted({0, len(text), *(border for chunk in chunks for border in (chunk.start, chunk.end))})
    pieces = [
        (text[start:end], [chunk for chunk in chunks if chunk.start <= start and end <= chunk.end])
        for start, end in pairwise(borders)
    ]
    starts = {chunk.start: chunk for chunk in reversed(chunks)}
    html = Markup("").join(
        _render_piece(piece, covering, starts.get(start))
        for (piece, covering), start in zip(pieces, borders[:-1], strict=True)
    )
    return View(
        html=Markup('<div style="white-space:pre-wrap;max-width:52em;line-height:1.5">{}</div>').format(html),
        text="\n".join(f"{_name_chunk(chunk)}\n{chunk.text}" for chunk in chunks),
    )


def _render_piece(piece: str, covering: Sequence[Chunk], starting: Chunk | None) -> Markup:
    label = Markup("<small><b>{}</b></small>\n").format(_name_chunk(starting)) if starting else ""
    if not covering:
        return Markup("{}{}").format(label, piece)
    colour = COLOURS[covering[0].ordinal % 2] if len(covering) == 1 else SHARED_COLOUR
    return Markup('{}<span style="background:{};color:#222">{}</span>').format(label, colour, piece)


def _name_chunk(chunk: Chunk) -> str:
    section = chunk.metadata.get("section")
    return f"chunk {chunk.ordinal}, characters {chunk.start} to {chunk.end}{f', {section}' if section else ''}"
