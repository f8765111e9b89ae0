"""The text of one paragraph while it is read, and the blocks that follow it."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rag_core.parsing.blocks import Block, is_page_number

_EXPONENT = re.compile(r"[-\u2212+]?\d+")


@dataclass(frozen=True, slots=True)
class ParagraphText:
    """The pieces of a paragraph's text in order, and what is anchored in it: comments, text boxes, tables."""

    pieces: list[str] = field(default_factory=list)
    following: list[Block] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def mark_exponent(self, start: int) -> None:
        """Inserts `^` if the pieces from index `start` on, which are superscript, make a whole number: 10^5."""
        if is_exponent("".join(self.pieces[start:])):
            self.pieces.insert(start, "^")


def is_exponent(superscript: str) -> bool:
    """True for a whole number: other superscripts, such as ordinals and references, are not powers."""
    return _EXPONENT.fullmatch(superscript) is not None


def distinct_furniture(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yields the blocks of headers and footers, each text once, without those that hold only a page number."""
    texts = set[str]()
    for block in blocks:
        if block.text not in texts and not is_page_number(block.text):
            texts.add(block.text)
            yield block
