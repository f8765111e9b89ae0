"""The filter of an answer's Markdown. It finds the markers, and removes what must not reach the user.

It removes images, HTML, terminal controls, links to other hosts but not their texts, and markers that name no passage.
Where it leaves something out, it keeps the texts on both sides from forming something new.
It rewrites what readers of Markdown parse differently: a fence moves to the margin, a backtick that closes nothing on
its line becomes an apostrophe, and `]` precedes `(` or `:` only in an allowed link.
"""

import re
from collections.abc import Collection, Mapping, Set

from rag_core.answering.citing.links import LINK_REMOVED, is_allowed_link_target, is_allowed_url
from rag_core.answering.citing.marker_output import MarkerOutput, Piece
from rag_core.answering.citing.marker_tokens import MAX_HELD_LENGTH, PLAIN_TEXT, TOKENS_BY_FIRST, Kind
from rag_core.answering.citing.markers import MARKER, marker_numbers

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SPACE = re.compile(r"\s++")
_LINE_START = re.compile(r"[ \t]*(?:(?:[-*+>]|\d{1,9}[.)])[ \t]*)*")
_SAFE_AFTER = re.compile(r"[*_.,:;!?…)\"'”’»]{1,6}+(?=\s|\Z|[\[【［])|[。、，！？；：」』）]")  # noqa: RUF001
_ACTIVE = re.compile(r"\](?=[(:])|<|//|www\.", re.I)
_HREF = re.compile(r"href\s*=\s*[\"']?([^\s\"']+)", re.I)
_MAX_CODE_INDENT = 12
_MAX_MARKERS_IN_A_ROW = 100
"""Markers without a word between them. A generator that repeats itself could write markers without end."""


class MarkerScanner:
    """A filter for one answer.

    `passage_hosts` maps each number that a marker can name to the host of its passage, or to an empty text. Links to
    that host are allowed after the marker, links to `hosts` always. `mark` is the format in which markers are written.
    """

    def __init__(self, passage_hosts: Mapping[int, str], hosts: Collection[str], mark: str = "[{}]") -> None:
        self._passage_hosts, self._hosts, self._mark = passage_hosts, {*hosts}, mark
        self._text, self._offset = "", 0
        self._output = MarkerOutput()
        self._fence: _Fence | None = None
        self._in_code_line = False

    @property
    def open_fence(self) -> str:
        """The marks that close the open block of code; empty if no block is open."""
        return self._fence.marks if self._fence else ""

    @property
    def hosts(self) -> Set[str]:
        """The hosts that links can lead to by now."""
        return self._hosts

    def feed(self, text: str) -> list[Piece]:
        """Returns the pieces that later text cannot change."""
        self._text += _CONTROL.sub("", text)
        return self._filter(final=False)

    def finish(self) -> list[Piece]:
        """Returns the remaining pieces, without white space at the end."""
        return self._filter(final=True)

    def _filter(self, final: bool) -> list[Piece]:
        self._scan(final)
        self._text, self._offset = self._text[self._offset :], 0
        return self._output.take_pieces()

    def _scan(self, final: bool) -> None:
        while self._offset < len(self._text) and self._scan_next(final):
            pass

    def _scan_next(self, final: bool) -> bool:
        """Scans the next token; False if it depends on text that has not arrived yet."""
        if self._fence:
            return self._scan_code(self._fence, final)
        if space := _SPACE.match(self._text, self._offset):
            self._output.hold_space(space[0])
            self._offset = space.end()
            return True
        if self._output.is_at_gap and not self._close_gap(final):
            return False
        for token in TOKENS_BY_FIRST.get(self._text[self._offset], ()):
            end = min(self._offset + token.max_length, len(self._text))
            decided = final or end < len(self._text) or end == self._offset + token.max_length
            match = token.pattern.match(self._text, self._offset, end)
            if not decided and (match.end() == end if match else token.incomplete.match(self._text, self._offset, end)):
                return False
            if match and self._write_token(token.kind, match):
                self._offset = match.end()
                return True
        plain = PLAIN_TEXT.match(self._text, self._offset)
        text = plain[0] if plain else self._text[self._offset]
        self._output.write(text)
        self._offset += len(text)
        return True

    def _close_gap(self, final: bool) -> bool:
        """Holds a space, except before punctuation; False if that depends on text that has not arrived yet."""
        punctuation = _SAFE_AFTER.match(self._text, self._offset)
        if punctuation and punctuation.end() == len(self._text) and not final:
            return False
        if not punctuation or (punctuation[0].startswith(":") and self._output.ends_with("]")):
            self._output.hold_space(" ")
        self._output.close_gap()
        return True

    def _scan_code(self, fence: "_Fence", final: bool) -> bool:
        """Scans a line of a code block, its indentation, or the closing fence."""
        if self._in_code_line:
            newline = self._text.find("\n", self._offset)
            end = newline + 1 or len(self._text)
            self._output.write_code(self._text[self._offset : end])
            self._offset, self._in_code_line = end, newline < 0
            return True
        end = min(self._offset + MAX_HELD_LENGTH, len(self._text))
        closing = fence.closing.match(self._text, self._offset, end)
        if end == len(self._text) and not final and (closing or fence.incomplete.match(self._text, self._offset)):
            return False
        if closing:
            self._output.write_code(closing[0].strip())
            self._output.hold_space("\n")
            self._offset, self._fence = closing.end(), None
            return True
        start = self._text[self._offset : self._offset + fence.indent]
        self._offset += len(start) - len(start.lstrip(" "))
        self._in_code_line = True
        return True

    def _write_token(self, kind: Kind, token: re.Match[str]) -> bool:
        """Writes a token, or what replaces it; False if the text is not this kind of token in its place."""
        match kind:
            case "fence":
                return self._open_fence(token)
            case "code":
                return self._write_code(token[0])
            case "definition":
                return self._write_definition(token)
            case "harmless_tag" if self._is_at_line_start:  # it would begin a block of HTML
                return False
            case "link":
                text = f"({token['text']})" if MARKER.fullmatch(f"[{token['text']}]") else token["text"]
                self._write_link(text, token["target"] or token["angled"] or "")
            case "anchor":
                target = _HREF.search(token["attributes"])
                self._write_link(token["text"], target[1] if target else "")
            case "autolink" | "url":
                if is_allowed_url(token["target"], self._hosts):
                    self._output.write(token["target"] + token["after"])
                    self._output.open_gap()
                else:
                    self._output.write(LINK_REMOVED + token["after"])
            case _:
                self._write_mark(kind, token)
        return True

    def _write_mark(self, kind: Kind, token: re.Match[str]) -> None:
        match kind:
            case "marker":
                self._write_marker(token)
            case "closing_bracket":
                self._write_closing_bracket(token)
            case "exclamation_mark" | "tag_start":
                self._write_apart(token[0])
            case "overlong_marker":
                self._output.write("(")
            case "stray_backticks":
                self._output.write("'" * len(token[0]))
            case "image" | "truncated_marker":
                self._output.leave_out()
            case _:
                self._output.write(token[0])

    def _open_fence(self, token: re.Match[str]) -> bool:
        """Moves the fence to the margin. Its line loses each `|`: before a line of dashes it would head a table."""
        line = self._output.line
        if not _LINE_START.fullmatch(line) or ">" in line:
            return False
        self._output.start_line()
        self._output.write_code(token[0].rstrip("\n").replace("|", " ") + "\n")
        self._fence, self._in_code_line = _Fence(token["marks"] or token["tildes"], len(line)), False
        return True

    def _write_code(self, code: str) -> bool:
        """Writes code within a line; False if a table could cut it at a `|` and so activate a part of it."""
        has_pipe = self._output.pipe_in_code or "|" in code
        if has_pipe and _ACTIVE.search(code):
            return False
        self._output.write(code)
        self._output.pipe_in_code = has_pipe
        return True

    def _write_definition(self, token: re.Match[str]) -> bool:
        """Writes the definition of a link; False if it is not one, or its target is not allowed."""
        is_marker = MARKER.fullmatch(f"[{token['label']}]")
        if is_marker or not self._is_at_line_start or not is_allowed_link_target(token["target"], self._hosts):
            return False
        self._output.write(token[0])
        return True

    def _write_marker(self, token: re.Match[str]) -> None:
        """Writes a marker for each passage that the token names, and allows links to the passage's host."""
        limit = max(_MAX_MARKERS_IN_A_ROW - self._output.markers_in_a_row, 0)
        numbers = marker_numbers(token[0], self._passage_hosts)[:limit]
        is_definition = self._is_at_line_start and self._text.startswith(":", token.end())
        for n in numbers:
            self._output.write(self._mark.format(n), n)
            self._hosts |= {self._passage_hosts[n]} - {""}
        if not numbers:
            self._output.leave_out()
        elif is_definition:
            self._output.hold_space(" ")

    def _write_closing_bracket(self, token: re.Match[str]) -> None:
        """Writes a bracket that neither completes a marker nor, before a colon, a definition."""
        if self._output.completes_marker(token[0]):
            self._output.write(")")
        elif self._text.startswith(":", token.end()):
            self._write_apart(token[0])
        else:
            self._output.write(token[0])

    def _write_link(self, text: str, target: str) -> None:
        """Writes a link, or only its text if the target is not allowed."""
        if is_allowed_link_target(target, self._hosts):
            self._output.write("[")
            self._write_filtered(text)
            self._output.write(f"]({target})")
        else:
            self._output.open_gap()
            self._write_filtered(text)
            self._output.open_gap()

    def _write_apart(self, text: str) -> None:
        """Writes the text with a space after it."""
        self._output.write(text)
        self._output.hold_space(" ")

    def _write_filtered(self, text: str) -> None:
        """Filters a text within the answer, such as that of a link."""
        outer = self._text, self._offset
        self._text, self._offset = text, 0
        self._scan(final=True)
        self._text, self._offset = outer

    @property
    def _is_at_line_start(self) -> bool:
        return bool(_LINE_START.fullmatch(self._output.line))


class _Fence:
    """An open fence of backticks or tildes. Up to `indent` spaces are removed from each line of its block."""

    def __init__(self, marks: str, indent: int) -> None:
        self.marks, self.indent = marks, min(indent, _MAX_CODE_INDENT)
        before = f" {{0,{self.indent + 3}}}"
        self.closing = re.compile(rf"{before}{marks[0]}{{{len(marks)},}}[ \t]*(?:\n|\Z)")
        self.incomplete = re.compile(rf"{before}{marks[0]}*[ \t]*\Z")
