"""The filter of text outside code. It finds the markers, and removes what must not reach the user.

It removes images, HTML, links to other hosts but not their texts, and markers that name no passage. Where it leaves
something out, it keeps the texts on both sides from forming something new. Its text is safe within code, too, and
outside code `]` precedes `(` or `:` only in an allowed link.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Self

import regex

from rag_core.answering.citing.links import LINK_REMOVED, is_allowed_link_target, is_allowed_url
from rag_core.answering.citing.markdown_code import Code
from rag_core.answering.citing.marker_output import LINE_START, MarkerOutput
from rag_core.answering.citing.marker_tokens import CODE, PLAIN_TEXT, TOKENS_BY_FIRST, Kind
from rag_core.answering.citing.markers import MARKER, marker_numbers

_SPACE = re.compile(r"\s++")
_SAFE_AFTER = re.compile(r"[*_.,:;!?…)\"'”’»]{1,6}+(?=\s|\Z|[\[【［])|[。、，！？；：」』）]")  # noqa: RUF001
_HREF = re.compile(r"href\s*=\s*[\"']?([^\s\"']+)", re.I)
_URL_OR_PATH = re.compile(r"[a-z][a-z0-9+.-]*:|[/\\]", re.I)
_OMISSION = "…"
"""A text for what was left out before three backticks or tildes, which would otherwise begin a line as a fence."""

_MAX_MARKERS_IN_A_ROW = 100
"""Markers without a word between them. A generator that repeats itself could write markers without end."""


class TokenFilter:
    """A filter for the text of one answer.

    `passage_hosts` maps each number that a marker can name to the host of its passage, or to an empty text. Links to
    that host are allowed after the marker, links to `hosts` always. `mark` is the format in which markers are written.
    """

    def __init__(self, passage_hosts: Mapping[int, str], hosts: Collection[str], mark: str = "[{}]") -> None:
        self.hosts = frozenset(hosts)
        self.output = MarkerOutput()
        self._passage_hosts, self._mark = passage_hosts, mark
        self._text, self._offset, self._is_last_block = "", 0, False
        self._code: Sequence[Code] = ()
        self._written_code: dict[Code, Code] = {}

    def copy(self) -> Self:
        """A filter that goes on from here on its own."""
        other = copy(self)
        other.output = self.output.copy()
        return other

    def feed(self, text: str) -> None:
        """Writes the part of the text so far that later text cannot change."""
        self._text += text
        self._scan(final=False)
        self._text, self._offset = self._text[self._offset :], 0

    def finish_block(self, text: str = "", code: Sequence[Code] = (), is_last: bool = False) -> dict[Code, Code]:
        """Writes the rest of a block; each `CODE` in the text stands for the next code.

        Returns where each code is in the block of the output. A code is missing if it was in an image.
        """
        self._text += text
        self._code, self._written_code, self._is_last_block = code, {}, is_last
        self._scan(final=True)
        self._text, self._offset = "", 0
        return self._written_code

    def _scan(self, final: bool) -> None:
        while self._offset < len(self._text) and self._scan_next(final):
            pass

    def _scan_next(self, final: bool) -> bool:
        """Scans the next token; False if it depends on text that has not arrived yet."""
        if space := _SPACE.match(self._text, self._offset):
            self.output.hold_space(space[0])
            self._offset = space.end()
            return True
        if self.output.is_at_gap and not self._close_gap(final):
            return False
        for token in TOKENS_BY_FIRST.get(self._text[self._offset], ()):
            end = min(self._offset + token.max_length, len(self._text))
            decided = final or end < len(self._text) or end == self._offset + token.max_length
            match = token.pattern.match(self._text, self._offset, end, partial=True)
            if match and match.end() == end and not decided:
                return False
            if match and not match.partial:
                code_after = self._code[match[0].count(CODE) :]
                if self._write_token(token.kind, match):
                    self._offset, self._code = match.end(), code_after
                    return True
        if self._text[self._offset] == CODE:
            self._write_code()
        else:
            plain = PLAIN_TEXT.match(self._text, self._offset)
            text = plain[0] if plain else self._text[self._offset]
            self.output.write(text)
            self._offset += len(text)
        return True

    def _close_gap(self, final: bool) -> bool:
        """Holds a space, except before punctuation; False if that depends on text that has not arrived yet."""
        punctuation = _SAFE_AFTER.match(self._text, self._offset)
        if punctuation and punctuation.end() == len(self._text) and not final:
            return False
        if not punctuation or (punctuation[0].startswith(":") and self.output.ends_with("]")):
            self.output.hold_space(" ")
        self.output.close_gap()
        return True

    def _write_code(self) -> None:
        code, *self._code = self._code
        if not code.is_block and code.text.startswith("```") and self.output.begins_line_at_gap:
            self.output.write(_OMISSION)
        start = self.output.write_code(code.text, code.is_block)
        self._written_code[code] = replace(code, start=start)
        self._offset += 1

    def _write_token(self, kind: Kind, token: "regex.Match[str]") -> bool:
        """Writes a token, or what replaces it; False if the text is not this kind of token in its place."""
        match kind:
            case "definition":
                return self._write_definition(token)
            case "truncated_marker" if not self._is_last_block:
                return False
            case "fence" if not self.output.begins_line_at_gap:
                return False
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
                if is_allowed_url(token["target"], self.hosts):
                    self.output.write(token["target"] + token["after"])
                    self.output.open_gap()
                else:
                    self.output.write(LINK_REMOVED + token["after"])
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
                self.output.write("(")
            case "fence":
                self.output.write(f"{_OMISSION}{token[0]}")
            case "image" | "truncated_marker":
                self.output.leave_out()
            case _:
                self.output.write(token[0])

    def _write_definition(self, token: "regex.Match[str]") -> bool:
        """Writes the definition of a link; False if it is not one, or its target is not allowed."""
        is_marker = MARKER.fullmatch(f"[{token['label']}]")
        if is_marker or not self._is_at_line_start or not is_allowed_link_target(token["target"], self.hosts):
            return False
        self.output.write(token[0])
        return True

    def _write_marker(self, token: "regex.Match[str]") -> None:
        """Writes a marker for each passage that the token names, and allows links to the passage's host."""
        limit = max(_MAX_MARKERS_IN_A_ROW - self.output.markers_in_a_row, 0)
        numbers = marker_numbers(token[0], self._passage_hosts)[:limit]
        is_definition = self._is_at_line_start and self._text.startswith(":", token.end())
        for n in numbers:
            self.output.write(self._mark.format(n), n)
            self.hosts |= {self._passage_hosts[n]} - {""}
        if not numbers:
            self.output.leave_out()
        elif is_definition:
            self.output.hold_space(" ")

    def _write_closing_bracket(self, token: "regex.Match[str]") -> None:
        """Writes a bracket that neither completes a marker nor, before a colon, a definition."""
        if self.output.completes_marker(token[0]):
            self.output.write(")")
        elif self._text.startswith(":", token.end()):
            self._write_apart(token[0])
        else:
            self.output.write(token[0])

    def _write_link(self, text: str, target: str) -> None:
        """Writes a link, or only its text if the target is not allowed."""
        if is_allowed_link_target(target, self.hosts):
            if self.output.ends_with("!"):  # together they would be an image
                self.output.hold_space(" ")
            self.output.write("[")
            self._write_filtered(text)
            self.output.write(f"]({target})")
        else:
            self.output.open_gap()
            self._write_filtered(text)
            self.output.open_gap()

    def _write_apart(self, text: str) -> None:
        """Writes the text with a space after it."""
        self.output.write(text)
        self.output.hold_space(" ")

    def _write_filtered(self, text: str) -> None:
        """Filters a text within the answer, such as that of a link."""
        outer = self._text, self._offset
        self._text, self._offset = text, 0
        self._scan(final=True)
        self._text, self._offset = outer

    @property
    def _is_at_line_start(self) -> bool:
        return bool(LINE_START.fullmatch(self.output.line))
