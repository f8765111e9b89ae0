"""The filtered text of an answer, and the gaps where something was left out of it."""

import re
from dataclasses import dataclass

from rag_core.answering.citing.markdown_code import CodeParser
from rag_core.answering.citing.markers import MARKER, MAX_MARKER_LENGTH

_SAFE_BEFORE = re.compile(r"[\s(*_\"'“‘«–—。、，！？；：」』）]\Z|[^\W\d\x00-\x7f]\Z")  # noqa: RUF001
_WORD = re.compile(r"\w")
_MARKER_AT_END = re.compile(rf"{MARKER.pattern}\Z")
_EMPTY_LINE_AT_END = re.compile(r"\n[ \t]*\n\Z")


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
        self.parser = CodeParser()
        self.length = 0
        self.markers_in_a_row = 0
        """The number of markers since the last word."""
        self._pieces: list[Piece] = []
        self._block = ""
        self._tail = ""
        self._spaces: list[str] = []
        self._line_end = ""  # the end of the line before something that was left out
        self._gap = False

    @property
    def block(self) -> str:
        """The text that decides how Markdown's readers take what follows: the current block at the margin so far."""
        space = self._held_space()
        block = self._block + space
        is_complete = _EMPTY_LINE_AT_END.search(self._tail[-1:] + space) and self.parser.is_complete(block, self.length)
        return "" if is_complete else block

    @property
    def line(self) -> str:
        """The current line so far; of a long line only the end."""
        return (self._tail + self._held_space()).rpartition("\n")[2]

    @property
    def is_at_gap(self) -> bool:
        """True if the next text could merge with the last one over a gap."""
        return self._gap and not self._held_space() and not _SAFE_BEFORE.search(self._tail[-1:] or " ")

    def ends_with(self, character: str) -> bool:
        return not self._held_space() and self._tail.endswith(character)

    def completes_marker(self, bracket: str) -> bool:
        """True if the text would end with a marker if the bracket were written."""
        return bool(_MARKER_AT_END.search(self._tail + self._held_space() + bracket))

    def take_pieces(self) -> list[Piece]:
        """Returns the pieces written since the last call."""
        pieces, self._pieces = self._pieces, []
        return pieces

    def hold_space(self, space: str) -> None:
        self._spaces.append(space)

    def open_gap(self) -> None:
        self._gap = True

    def close_gap(self) -> None:
        self._gap = False

    def leave_out(self) -> None:
        """Opens a gap and drops the white space before it, except for the end of a line."""
        space = self._held_space()
        self._line_end = space if "\n" in space else ""
        self._spaces.clear()
        self.open_gap()

    def write(self, text: str, n: int = 0, block: bool = False) -> None:
        """Writes the held white space and the text. A `(` after a `]` gets a space: together they would be a link."""
        if text.startswith("(") and self.ends_with("]"):
            self.hold_space(" ")
        self._block, space = self.block + text, self._held_space()
        self._spaces.clear()
        self._line_end, self._gap = "", False
        self._append_piece(space)
        self._append_piece(text, n, block)

    def write_code(self, text: str) -> None:
        """Writes a part of a code block between its fences."""
        self._append_piece(text, block=True)

    def end_block(self) -> None:
        """Marks the text so far as complete blocks."""
        self._block = ""

    def _held_space(self) -> str:
        space = "".join(self._spaces) if self._tail else ""
        return space if "\n" in space else self._line_end or space

    def _append_piece(self, text: str, n: int = 0, block: bool = False) -> None:
        if not text:
            return
        self._pieces.append(Piece(text, n, block))
        self.length += len(text)
        self._tail = (self._tail + text)[-MAX_MARKER_LENGTH:]
        if n:
            self.markers_in_a_row += 1
        elif _WORD.search(text):
            self.markers_in_a_row = 0
