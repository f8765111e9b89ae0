"""What the user reads of an answer, and where something was left out of it."""

import re
from dataclasses import dataclass

from rag_core.answering.citing.markers import LONGEST, MARKER

_SAFE_BEFORE = re.compile(r"[\s(*_\"'“‘«–—。、，！？；：」』）]\Z|[^\W\d\x00-\x7f]\Z")  # noqa: RUF001
_WORD = re.compile(r"\w")
_MARKER_AT_END = re.compile(rf"{MARKER.pattern}\Z")


@dataclass(frozen=True, slots=True)
class Piece:
    """`n` is a marker's, otherwise 0; `block` says that it stands in a block of code."""

    text: str
    n: int = 0
    block: bool = False


class Page:
    """White space is held back until something follows it. Where something was left out the page is `parted`: what
    comes next must not run together with what stands there by chance."""

    def __init__(self) -> None:
        self._pieces: list[Piece] = []
        self._tail = ""
        self._space: list[str] = []
        self._line_end = ""
        self._parted = False
        self.markers = 0
        """As many since the last word."""
        self.piped = False
        """Whether code with a `|` stands in this line, which ends the code in a table and nowhere else."""

    @property
    def line(self) -> str:
        """So far; of a long one its end."""
        return (self._tail + self._held()).rpartition("\n")[2]

    @property
    def parted(self) -> bool:
        return self._parted and not self._held() and not _SAFE_BEFORE.search(self._tail[-1:] or " ")

    def ends_with(self, character: str) -> bool:
        return not self._held() and self._tail.endswith(character)

    def completes_marker(self, bracket: str) -> bool:
        return bool(_MARKER_AT_END.search(self._tail + self._held() + bracket))

    def taken(self) -> list[Piece]:
        """What was put down since the last time."""
        pieces, self._pieces = self._pieces, []
        return pieces

    def hold(self, space: str) -> None:
        self._space.append(space)

    def part(self) -> None:
        self._parted = True

    def joined(self) -> None:
        self._parted = False

    def drop(self) -> None:
        """Something is left out, and the white space before it; but a line that ended stays ended."""
        held = self._held()
        self._line_end = held if "\n" in held else ""
        self._space.clear()
        self.part()

    def put(self, text: str, n: int = 0) -> None:
        self._out(self._held() or (" " if text.startswith("(") and self._tail.endswith("]") else ""))
        self._release()
        self._out(text, n)

    def put_code(self, text: str) -> None:
        """Of a block, as it is."""
        self._out(text, block=True)

    def to_margin(self) -> None:
        """Goes on at the beginning of a line."""
        lines, newline, _ = self._held().rpartition("\n")
        self._out(lines + (newline or ("\n" if self._tail else "")))
        self._release()

    def _held(self) -> str:
        space = "".join(self._space) if self._tail else ""
        return space if "\n" in space else self._line_end or space

    def _release(self) -> None:
        self._space.clear()
        self._line_end, self._parted = "", False

    def _out(self, text: str, n: int = 0, block: bool = False) -> None:
        if not text:
            return
        self._pieces.append(Piece(text, n, block))
        self._tail = (self._tail + text)[-LONGEST:]
        self.piped = self.piped and "\n" not in text
        if n:
            self.markers += 1
        elif _WORD.search(text):
            self.markers = 0
