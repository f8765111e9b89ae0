"""The filter of an answer's Markdown. It finds the markers, and removes what must not reach the user.

It removes images, HTML, terminal controls, links to other hosts but not their texts, and markers that name no passage.
Where it leaves something out, it keeps the texts on both sides from forming something new.
Fenced code and code within paragraphs pass unchanged, if all readers of Markdown take them for code. All other text is
filtered so that it is safe within code, too: outside code `]` precedes `(` or `:` only in an allowed link.
"""

import re
from collections.abc import Collection, Mapping, Set

import regex

from rag_core.answering.citing.links import LINK_REMOVED, is_allowed_link_target, is_allowed_url
from rag_core.answering.citing.marker_output import MarkerOutput, Piece
from rag_core.answering.citing.marker_tokens import MAX_HELD_LENGTH, PLAIN_TEXT, TOKENS_BY_FIRST, Kind
from rag_core.answering.citing.markers import MARKER, marker_numbers

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SPACE = re.compile(r"\s++")
_LINE_START = re.compile(r"[ \t]*(?:(?:[-*+>]|\d{1,9}[.)])[ \t]*)*")
_SAFE_AFTER = re.compile(r"[*_.,:;!?…)\"'”’»]{1,6}+(?=\s|\Z|[\[【［])|[。、，！？；：」』）]")  # noqa: RUF001
_HREF = re.compile(r"href\s*=\s*[\"']?([^\s\"']+)", re.I)
_URL_OR_PATH = re.compile(r"[a-z][a-z0-9+.-]*:|[/\\]", re.I)
_ACTIVE = re.compile(r"\](?=[(:])|<|//|www\.", re.I)
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
        self._in_link = False

    @property
    def open_fence(self) -> str:
        """The marks that close the open block of code; empty if no block is open, or if the next block closes it."""
        return self._fence.marks if self._fence and self._fence.level == 0 else ""

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
            return self._scan_fenced(self._fence, final)
        if space := _SPACE.match(self._text, self._offset):
            self._output.hold_space(space[0])
            self._offset = space.end()
            return True
        if self._output.is_at_gap and not self._close_gap(final):
            return False
        for token in TOKENS_BY_FIRST.get(self._text[self._offset], ()):
            end = min(self._offset + token.max_length, len(self._text))
            decided = final or end < len(self._text) or end == self._offset + token.max_length
            match = token.pattern.match(self._text, self._offset, end, partial=True)
            if match and match.end() == end and not decided:
                return False
            if match and not match.partial and self._write_token(token.kind, match):
                self._offset = match.end()
                return True
        if self._text[self._offset] in "`~":
            return self._scan_code(final)
        plain = PLAIN_TEXT.match(self._text, self._offset)
        self._write_text(plain[0] if plain else self._text[self._offset])
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

    def _scan_code(self, final: bool) -> bool:
        """Scans a fence, code within a line, or marks that are neither; False if that depends on later text."""
        held = self._text[self._offset : self._offset + MAX_HELD_LENGTH]
        is_decided = final or len(held) == MAX_HELD_LENGTH
        marks = held[: len(held) - len(held.lstrip(held[0]))]
        line, newline, _ = held[len(marks) :].partition("\n")
        if not (newline or line or is_decided):
            return False
        if len(marks) >= 3 and self._is_at_line_start and not ("`" in marks and "`" in line):
            is_line_complete = newline or (final and not self._in_link)
            if not (is_line_complete or is_decided):
                return False
            # with a "|", some readers take the line for the head of a table
            if is_line_complete and "|" not in line:
                self._write_fence(marks, marks + line + newline)
            else:
                self._write_text(marks)
            return True
        code = self._find_code(marks, held, is_decided) if "`" in marks else ""
        if code is not None:
            self._write_text(code or marks)
        return code is not None

    def _write_fence(self, marks: str, line: str) -> None:
        """Writes the line of a fence, or only its marks if it opens no code block."""
        block = self._output.block
        level = self._output.parser.fence_level(block + line.removesuffix("\n") + "\n", self._output.length)
        if level < 0:
            self._write_text(marks)
        else:
            self._write_text(line, block=True)
            self._fence, self._in_code_line = _Fence(marks, level, block.rpartition("\n")[2]), False

    def _find_code(self, backticks: str, held: str, is_decided: bool) -> str | None:
        """The code, with its backticks, that begins the held text. Empty: there is none; None: later text decides."""
        line, newline, _ = held.partition("\n")
        closing = re.compile(rf"(?<!`){backticks}(?!`)").search(line, len(backticks))
        if not (newline or is_decided) and (not closing or closing.end() == len(held)):
            return None
        code = held[: closing.end()] if closing else ""
        line_before = self._output.block.rpartition("\n")[2]
        # a row of dashes in the next line would make this line the head of a table, whose cells end at each "|"
        has_pipe = "|" in code or ("|" in line_before and "`" in line_before)
        if not code or (has_pipe and _ACTIVE.search(code)):
            return ""
        contexts = (self._output.block, line_before)
        is_code = all(self._output.parser.ends_with_code(text + code, code, self._output.length) for text in contexts)
        return code if is_code else ""

    def _scan_fenced(self, fence: "_Fence", final: bool) -> bool:
        """Scans a part of a code block, or the line that ends it; False if that depends on later text."""
        newline = self._text.find("\n", self._offset)
        line = self._text[self._offset : newline + 1 or len(self._text)]
        if self._in_code_line or fence.code.match(line):
            self._write_code(line)
            return True
        if newline < 0 and not final and len(line) < MAX_HELD_LENGTH:
            return False
        text = self._output.block + line.removesuffix("\n") + "\n"
        kind = "outside"
        if len(line) < MAX_HELD_LENGTH:
            kind = self._output.parser.fence_line(text, self._output.length)
        if kind == "code":
            self._write_code(line)
            return True
        self._fence = None
        if kind == "end":
            self._write_text(line.removesuffix("\n"), block=True)
            if fence.level == 0:
                self._output.end_block()
        return True

    def _write_code(self, text: str) -> None:
        """Writes a line of a code block, or a part of it."""
        self._output.write_code(text)
        self._offset += len(text)
        self._in_code_line = not text.endswith("\n")

    def _write_text(self, text: str, block: bool = False) -> None:
        """Writes the next part of the text as it is."""
        self._output.write(text, block=block)
        self._offset += len(text)

    def _write_token(self, kind: Kind, token: "regex.Match[str]") -> bool:
        """Writes a token, or what replaces it; False if the text is not this kind of token in its place."""
        match kind:
            case "definition":
                return self._write_definition(token)
            case "harmless_tag" if self._is_at_line_start:  # it would begin a block of HTML
                return False
            case "link":
                text, target = token["text"], token["target"] or token["angled"] or ""
                is_marker = MARKER.fullmatch(f"[{text}]")
                if is_marker and not _URL_OR_PATH.match(target):  # [1](as above) is a marker and a remark
                    return False
                self._write_link(f"({text})" if is_marker else text, target)
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

    def _write_mark(self, kind: Kind, token: "regex.Match[str]") -> None:
        match kind:
            case "marker":
                self._write_marker(token)
            case "closing_bracket":
                self._write_closing_bracket(token)
            case "exclamation_mark" | "tag_start":
                self._write_apart(token[0])
            case "overlong_marker":
                self._output.write("(")
            case "image" | "truncated_marker":
                self._output.leave_out()
            case _:
                self._output.write(token[0])

    def _write_definition(self, token: "regex.Match[str]") -> bool:
        """Writes the definition of a link; False if it is not one, or its target is not allowed."""
        is_marker = MARKER.fullmatch(f"[{token['label']}]")
        if is_marker or not self._is_at_line_start or not is_allowed_link_target(token["target"], self._hosts):
            return False
        self._output.write(token[0])
        return True

    def _write_marker(self, token: "regex.Match[str]") -> None:
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

    def _write_closing_bracket(self, token: "regex.Match[str]") -> None:
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
            if self._output.ends_with("!"):  # together they would be an image
                self._output.hold_space(" ")
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
        self._text, self._offset, self._in_link = text, 0, True
        self._scan(final=True)
        (self._text, self._offset), self._in_link = outer, False

    @property
    def _is_at_line_start(self) -> bool:
        return bool(_LINE_START.fullmatch(self._output.line))


class _Fence:
    """An open fence. `code` matches a line if it is certain that the fence is open after it.

    `before` is the line before its marks; `level` is the number of blocks around it.
    """

    def __init__(self, marks: str, level: int, before: str) -> None:
        self.marks, self.level = marks, level
        indent = re.escape(re.sub(r"[^\s>]", " ", before)) if level else ""
        empty_line = "" if ">" in before else r"|[ \t]*+\n"
        self.code = re.compile(rf"{indent}[ \t]*+(?!{marks[0]}*+[ \t]*+(?:\n|\Z)){empty_line}")
