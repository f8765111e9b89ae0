"""The filtered text of an answer, and the gaps where something was left out of it."""

import re
from copy import copy
from dataclasses import dataclass
from typing import Self

from rag_core.answering.citing.markers import MARKER, MAX_MARKER_LENGTH

_SAFE_BEFORE = re.compile(r"[\s(*_\"'“‘«–—。、，！？；：」』）]\Z|[^\W\d\x00-\x7f]\Z")  # noqa: RUF001
LINE_START = re.compile(r"[ \t]*(?:(?:[-*+>]|\d{1,9}[.)])[ \t]*)*")
"""The part of a line before its text: indentation, and what begins lists and quotes."""

_WORD = re.compile(r"\w")
_MARKER_AT_END = re.compile(rf"{MARKER.pattern}\Z")
_EMPTY_LINE = re.compile(r"\n[ \t]*\n")


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of the filtered text. `n` is the number of a marker, else 0; `block`: the text is in a code block."""

    text: str
    n: int = 0
    block: bool = False


class MarkerOutput:
    """The filtered text, as it is written.

    White space is held until other text follows it. A gap is a position where something was left out: the texts before
    and after it must not merge into Markdown that the answer did not contain.
    """

    def __init__(self) -> None:
        self.block = ""
        """The text since the last position at which no list, quote or code was open."""
        self.markers_in_a_row = 0
        """The number of markers since the last word."""
        self._pieces: list[Piece] = []
        self._tail = ""
        self._space = ""
        self._line_start = ""  # the white space before what was left out at the beginning of a line
        self._gap = False  # until it is closed
        self._follows_gap = False
        self._is_block_complete = False

    @property
    def line(self) -> str:
        """The current line so far; of a long line only the end."""
        return (self._tail + self._held_space()).rpartition("\n")[2]

    @property
    def is_at_gap(self) -> bool:
        """True if the next text could merge with the last one over a gap."""
        return self._gap and not self._held_space() and not _SAFE_BEFORE.search(self._tail[-1:] or " ")

    @property
    def begins_line_at_gap(self) -> bool:
        """True if nothing is left of the current line so far."""
        return self._follows_gap and "\n" not in self._space and bool(LINE_START.fullmatch(self.line))

    def ends_with(self, character: str) -> bool:
        return not self._held_space() and self._tail.endswith(character)

    def completes_marker(self, bracket: str) -> bool:
        """True if the text would end with a marker if the bracket were written."""
        return bool(_MARKER_AT_END.search(self._tail + self._held_space() + bracket))

    def copy(self) -> Self:
        """An output that goes on from here on its own."""
        other = copy(self)
        other._pieces = [*self._pieces]
        return other

    def take_pieces(self) -> list[Piece]:
        """Returns the pieces written since the last call."""
        pieces, self._pieces = self._pieces, []
        return pieces

    def hold_space(self, space: str) -> None:
        self._space += space

    def open_gap(self) -> None:
        self._gap = self._follows_gap = True

    def close_gap(self) -> None:
        self._gap = False

    def leave_out(self) -> None:
        """Opens a gap and drops the white space before it, except at the beginning of a line."""
        self._line_start = self._held_space() if LINE_START.fullmatch(self.line) else ""
        self._space = ""
        self.open_gap()

    def write(self, text: str, n: int = 0) -> None:
        """Writes the held white space and the text. A `(` after a `]` gets a space: together they would be a link."""
        if text.startswith("(") and self.ends_with("]"):
            self.hold_space(" ")
        self._append(Piece(text, n))

    def write_code(self, text: str, block: bool) -> int:
        """Writes code as it is; returns its offset in the block."""
        self._append(Piece(text, block=block))
        return len(self.block) - len(text)

    def complete_block(self) -> None:
        """Begins a new block with the next text if that is at the margin, after an empty line."""
        self._is_block_complete = True

    def start_block(self) -> None:
        """Begins a new block with the next text."""
        self.block, self._is_block_complete = "", False

    def _held_space(self) -> str:
        """The white space before the next text. An empty line remains if something was left out after it."""
        space = self._space if self._tail else ""
        if "\n" not in space:
            return self._line_start or (space[:1] if self._gap else space)
        if _EMPTY_LINE.search(self._line_start) and not _EMPTY_LINE.search(space):
            return f"\n{space}" if space.endswith("\n") else self._line_start
        return space

    def _append(self, piece: Piece) -> None:
        if not piece.text:
            return
        space = self._held_space()
        if self._is_block_complete and _EMPTY_LINE.search(space) and space.endswith("\n"):
            self.block = ""
        self._space, self._line_start = "", ""
        self._gap = self._follows_gap = self._is_block_complete = False
        self._pieces += [Piece(space), piece] if space else [piece]
        self.block += space + piece.text
        self._tail = (self._tail + space + piece.text)[-MAX_MARKER_LENGTH:]
        if piece.n:
            self.markers_in_a_row += 1
        elif _WORD.search(piece.text):
            self.markers_in_a_row = 0
