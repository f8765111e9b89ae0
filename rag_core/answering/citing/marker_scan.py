"""The filter of an answer's Markdown while it is written.

Code passes unchanged if all readers of Markdown agree that it is code; `TokenFilter` filters the rest. Text passes at
once up to the first character that could begin code. From there the filter holds the block until its end, or until the
next item of a list. Then markdown-it finds the code in the block, and confirms it in the filtered block.

A block ends before a line at the margin that follows an empty line, and before a fence at the margin. The lines of such
a fence pass at once.
"""

import re
from collections.abc import Collection, Mapping, Sequence, Set

import regex  # unlike re, it looks behind as far as needed

from rag_core.answering.citing.markdown_code import Code, find_code, read_markdown
from rag_core.answering.citing.marker_output import Piece
from rag_core.answering.citing.marker_tokens import CODE, remove_controls
from rag_core.answering.citing.token_filter import TokenFilter

MAX_HELD_LENGTH = 100_000
"""Code points of a block that the filter holds. Nothing after that is code."""

_BOUNDARY = regex.compile(
    r"""^(?:
    (?P<block>(?=\S)(?<=^[ \t]*\n))
    | (?P<fence>`{3,}+|~{3,}+)(?:[^`|\n]*+\n|[^`\n]*+\n(?=[-|:\ \t]*+[^-|:\ \t\n]))  # not the head of a table
    | (?P<item>[\ \t>]*+(?:[-*+]|\d{1,9}[.)])[\ \t]++)(?=[\ \t*_|:-]*+[^\s*_|:-])  # not a thematic break
    )""",
    regex.MULTILINE | regex.VERBOSE,
)
_CODE_START = re.compile(r"^[ \t\d.)*+>-]*(?:`|~~~|(?:\t| {4})[ \t]*\S)|`|~~~", re.M)
_UNDECIDED = re.compile(r"(?:^[ \t\d.)*+>-]*)?~{0,2}\Z", re.M)


class MarkerScanner:
    """A filter for one answer. The parameters are those of `TokenFilter`."""

    def __init__(self, passage_hosts: Mapping[int, str], hosts: Collection[str], mark: str = "[{}]") -> None:
        self._filter = TokenFilter(passage_hosts, hosts, mark)
        self._source = ""  # the current block
        self._filtered = self._searched = self._parsed = 0  # lengths of its beginnings
        self._held_from: int | None = None
        self._finds_code = True
        self._fence = ""

    @property
    def open_fence(self) -> str:
        """The marks that close the open block of code; empty if no block is open, or if the next block closes it."""
        return self._fence

    @property
    def hosts(self) -> Set[str]:
        """The hosts that links can lead to by now."""
        return self._filter.hosts

    def feed(self, text: str) -> list[Piece]:
        """Returns the pieces that later text cannot change."""
        self._source += remove_controls(text)
        while self._scan_fence() if self._fence else self._scan_block():
            pass
        return self._filter.output.take_pieces()

    def finish(self) -> list[Piece]:
        """Returns the remaining pieces, without white space at the end."""
        pieces = self.feed("\n")
        if not self._fence:
            self._end_block(len(self._source), is_last=True)
        return pieces + self._filter.output.take_pieces()

    def _scan_block(self) -> bool:
        """Scans the text up to the next boundary; False if it has not arrived."""
        boundary = self._find_boundary() if self._finds_code else None
        end = boundary.start() if boundary else len(self._source)
        if self._held_from is None:
            self._filter_text(end, is_complete=boundary is not None)
        if self._held_from is not None and end - self._held_from > MAX_HELD_LENGTH:
            self._held_from, self._finds_code = None, False
        elif not boundary:
            return False
        elif boundary["item"]:
            self._searched = boundary.end()
            self._release_items(end, boundary["item"])
        elif boundary["fence"] and end == 0:
            self._fence = boundary["fence"]
            self._pass_code_line(self._source.partition("\n")[0])
        else:
            self._end_block(end)
        return True

    def _find_boundary(self) -> "regex.Match[str] | None":
        """The next boundary. The last two lines are searched again: more text can make one of them a boundary."""
        line = self._searched
        while True:
            boundary, newline = _BOUNDARY.match(self._source, line), self._source.find("\n", line)
            if boundary or newline < 0:
                return boundary
            self._searched, line = line, newline + 1

    def _filter_text(self, end: int, is_complete: bool) -> None:
        """Filters the text up to the first character that could begin code."""
        if self._finds_code:
            code = _CODE_START.search(self._source, self._filtered, end)
            stop = code or (None if is_complete else _UNDECIDED.search(self._source, self._filtered))
            end = stop.start() if stop else end
            self._held_from = end if code else None
        self._filter.feed(self._source[self._filtered : end])
        self._filtered = max(self._filtered, end)

    def _release_items(self, end: int, next_item: str) -> None:
        """Filters the held text up to an item of a list, unless the item is within code."""
        is_held = self._held_from is not None and self._held_from < end
        if is_held and 8 * end >= 9 * self._parsed:  # so that parsing takes linear time
            trial, fence = self._filter_held(end, f"{next_item}x")
            if fence is not None:
                self._filter, self._filtered, self._held_from = trial, end, None
            if fence:
                self._start_block(end, fence)

    def _end_block(self, end: int, is_last: bool = False) -> None:
        """Filters the rest of the block."""
        if self._held_from is not None and self._held_from < end:
            self._filter, fence = self._filter_held(end, "\nx", is_last)
            self._finds_code = fence is not None
        else:
            self._filter.finish_block(self._source[self._filtered : end], is_last=is_last)
            fence = ""
        self._filter.output.complete_block()
        self._start_block(end, fence or "")

    def _start_block(self, start: int, fence: str = "") -> None:
        self._source, self._fence = self._source[start:], fence
        self._filtered = self._searched = self._parsed = 0
        self._held_from = None

    def _filter_held(self, end: int, next_line: str, is_last: bool = False) -> tuple[TokenFilter, str | None]:
        """Filters the held text up to `end`; `next_line` is how a block goes on there.

        Returns the filter after it, and the fence that is open there, as in `Reading`.
        """
        self._parsed = end
        code = [part for part in find_code(self._source[:end]) if part.start >= self._filtered]
        for attempt in range(3):
            trial = self._filter.copy()
            written = trial.finish_block(self._replace_code(code, end), code, is_last)
            reading = read_markdown(trial.output.block, next_line)
            confirmed = [part for part in code if part not in written or written[part] in reading.code]
            if confirmed == code:
                break
            code = confirmed if attempt == 0 else []
        return trial, reading.open_fence

    def _replace_code(self, code: Sequence[Code], end: int) -> str:
        """The text up to `end` that is not filtered yet, with `CODE` in place of each part of the code."""
        starts, ends = [self._filtered, *(part.end for part in code)], [*(part.start for part in code), end]
        return CODE.join(self._source[start:stop] for start, stop in zip(starts, ends, strict=True))

    def _scan_fence(self) -> bool:
        """Passes the next line of the open fence, or the part of it that has arrived; False if that was all."""
        is_line_start = self._filtered == 0 or self._source[self._filtered - 1] == "\n"
        newline = self._source.find("\n", self._filtered)
        line = self._source[self._filtered : newline if newline >= 0 else None]
        marks = re.fullmatch(rf" {{0,3}}({self._fence[0]}*)[ \t]*", line) if is_line_start else None
        if newline >= 0:
            self._pass_code_line(line)
            if marks and len(marks[1]) >= len(self._fence):
                self._filter.output.start_block()
                self._start_block(self._filtered)
        elif not marks:  # else it could become the line that closes the fence
            self._filter.output.write_code(line, block=True)
            self._filtered += len(line)
        return newline >= 0

    def _pass_code_line(self, line: str) -> None:
        """Passes a line of code, or the rest of it, with its end."""
        self._filter.output.write_code(line, block=True)
        self._filter.output.hold_space("\n")
        self._filtered += len(line) + 1
