"""An answer's Markdown on its way to the user: which of it is a marker, and which must not reach them.

Images and HTML do not. A link keeps its text, and its target only where that is allowed. Nor does a marker that names
no passage, nor what would only come about by leaving something out, nor a terminal's controls. What readers of Markdown
would not all read alike is rewritten until they do: a fence goes to the margin, a backtick that closes nothing on its
line becomes an apostrophe, and `]` meets `(` or `:` only in a link that is kept.
"""

import re
from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass

from rag_core.answering.citing.links import REMOVED, allowed, linkable
from rag_core.answering.citing.marker_page import Page, Piece
from rag_core.answering.citing.marker_tokens import BY_FIRST, LIMIT, PLAIN, Kind
from rag_core.answering.citing.markers import MARKER, numbers

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SPACE = re.compile(r"\s++")
_LINE_START = re.compile(r"[ \t]*(?:(?:[-*+>]|\d{1,9}[.)])[ \t]*)*")
_SAFE_AFTER = re.compile(r"[*_.,:;!?…)\"'”’»]{1,6}+(?=\s|\Z|[\[【［])|[。、，！？；：」』）]")  # noqa: RUF001
_LIVE = re.compile(r"\](?=[(:])|<|//|www\.", re.I)
_HREF = re.compile(r"href\s*=\s*[\"']?([^\s\"']+)", re.I)
_DEEPEST = 12
_MOST_IN_A_ROW = 100
"""Markers without a word between them: a generator that has lost itself ends nowhere."""


class MarkerScanner:
    """`known` are the numbers that markers may name, each with the host that links may lead to behind its marker, or
    with an empty one; to `hosts` they always may. `mark` is how a marker is written."""

    def __init__(self, known: Mapping[int, str], hosts: Collection[str], mark: str = "[{}]") -> None:
        self._known, self._hosts, self._mark = known, {*hosts}, mark
        self._text, self._at = "", 0
        self._page = Page()
        self._fence: _Fence | None = None
        self._in_line = False

    @property
    def fence(self) -> str:
        """What closes the block of code that is open; empty where none is."""
        return self._fence.marks if self._fence else ""

    @property
    def hosts(self) -> Set[str]:
        """That links may lead to by now."""
        return self._hosts

    def feed(self, text: str) -> list[Piece]:
        """What is decided by now."""
        self._text += _CONTROL.sub("", text)
        return self._scanned(final=False)

    def finish(self) -> list[Piece]:
        """The rest, without white space at its end."""
        return self._scanned(final=True)

    def _scanned(self, final: bool) -> list[Piece]:
        self._scan(final)
        self._text, self._at = self._text[self._at :], 0
        return self._page.taken()

    def _scan(self, final: bool) -> None:
        while self._at < len(self._text) and self._step(final):
            pass

    def _step(self, final: bool) -> bool:
        """Whether something was decided; otherwise more text must come."""
        if self._fence:
            return self._step_in_code(self._fence, final)
        if space := _SPACE.match(self._text, self._at):
            self._page.hold(space[0])
            return self._past(space)
        if self._page.parted and not self._joined(final):
            return False
        for token in BY_FIRST.get(self._text[self._at], ()):
            end = min(self._at + token.limit, len(self._text))
            settled = final or end < len(self._text) or end == self._at + token.limit
            found = token.pattern.match(self._text, self._at, end)
            if not settled and (found.end() == end if found else token.opening.match(self._text, self._at, end)):
                return False
            if found and _ACTIONS[token.kind](self, found):
                return self._past(found)
        return self._plain()

    def _joined(self, final: bool) -> bool:
        """Sentence punctuation goes on where something was left out; before all else comes a space."""
        found = _SAFE_AFTER.match(self._text, self._at)
        if found and found.end() == len(self._text) and not final:
            return False
        if not found or (found[0].startswith(":") and self._page.ends_with("]")):
            self._page.hold(" ")
        self._page.joined()
        return True

    def _plain(self) -> bool:
        run = PLAIN.match(self._text, self._at)
        text = run[0] if run else self._text[self._at]
        self._page.put(text)
        self._at += len(text)
        return True

    def _past(self, found: re.Match[str]) -> bool:
        self._at = found.end()
        return True

    def _step_in_code(self, fence: "_Fence", final: bool) -> bool:
        if self._in_line:
            return self._code_line()
        end = min(self._at + LIMIT, len(self._text))
        closing = fence.closing.match(self._text, self._at, end)
        if end == len(self._text) and not final and (closing or fence.opening.match(self._text, self._at)):
            return False
        if closing:
            return self._close(closing)
        line = self._text[self._at : self._at + fence.indent]
        self._at += len(line) - len(line.lstrip(" "))
        self._in_line = True
        return True

    def _code_line(self) -> bool:
        newline = self._text.find("\n", self._at)
        end = newline + 1 or len(self._text)
        self._page.put_code(self._text[self._at : end])
        self._at, self._in_line = end, newline < 0
        return True

    def _close(self, closing: re.Match[str]) -> bool:
        self._page.put_code(closing[0].strip())
        self._page.hold("\n")
        self._fence = None
        return self._past(closing)

    def _open_fence(self, found: re.Match[str]) -> bool:
        """With a `|` behind it, it could be a table's head."""
        line = self._page.line
        if not _LINE_START.fullmatch(line) or ">" in line:
            return False
        self._page.to_margin()
        self._page.put_code(found[0].rstrip("\n").replace("|", " ") + "\n")
        self._fence, self._in_line = _Fence.of(found["marks"] or found["tildes"], len(line)), False
        return True

    def _code(self, found: re.Match[str]) -> bool:
        piped = self._page.piped or "|" in found[0]
        if piped and _LIVE.search(found[0]):
            return False
        self._page.put(found[0])
        self._page.piped = piped
        return True

    def _stray(self, found: re.Match[str]) -> bool:
        self._page.put("'" * len(found[0]))
        return True

    def _as_it_is(self, found: re.Match[str]) -> bool:
        self._page.put(found[0])
        return True

    def _apart(self, found: re.Match[str]) -> bool:
        """From what follows."""
        self._page.put(found[0])
        self._page.hold(" ")
        return True

    def _nothing(self, _found: re.Match[str]) -> bool:
        self._page.drop()
        return True

    def _definition(self, found: re.Match[str]) -> bool:
        known = linkable(found["target"], self._hosts) and not MARKER.fullmatch(f"[{found['label']}]")
        if known and self._at_line_start:
            self._page.put(found[0])
            return True
        return False

    def _break(self, found: re.Match[str]) -> bool:
        """At the beginning of a line HTML would take over what follows."""
        return not self._at_line_start and self._as_it_is(found)

    def _marker(self, found: re.Match[str]) -> bool:
        named = numbers(found[0], self._known)[: max(_MOST_IN_A_ROW - self._page.markers, 0)]
        defines = self._at_line_start and self._text[found.end() : found.end() + 1] == ":"
        for n in named:
            self._page.put(self._mark.format(n), n)
            self._hosts |= {self._known[n]} - {""}
        if not named:
            self._page.drop()
        elif defines:
            self._page.hold(" ")
        return True

    def _rounded(self, _found: re.Match[str]) -> bool:
        self._page.put("(")
        return True

    def _bracket(self, found: re.Match[str]) -> bool:
        if self._page.completes_marker(found[0]):
            self._page.put(")")
        elif self._text[found.end() : found.end() + 1] == ":":
            return self._apart(found)
        else:
            self._page.put(found[0])
        return True

    def _link(self, found: re.Match[str]) -> bool:
        text = f"({found['text']})" if MARKER.fullmatch(f"[{found['text']}]") else found["text"]
        return self._linked(text, found["target"] or found["angled"] or "")

    def _anchor(self, found: re.Match[str]) -> bool:
        target = _HREF.search(found["attributes"])
        return self._linked(found["text"], target[1] if target else "")

    def _linked(self, text: str, target: str) -> bool:
        if linkable(target, self._hosts):
            self._page.put("[")
            self._inside(text)
            self._page.put(f"]({target})")
        else:
            self._page.part()
            self._inside(text)
            self._page.part()
        return True

    def _inside(self, text: str) -> None:
        outside = self._text, self._at
        self._text, self._at = text, 0
        self._scan(final=True)
        self._text, self._at = outside

    def _url(self, found: re.Match[str]) -> bool:
        if allowed(found["target"], self._hosts):
            self._page.put(found["target"] + found["after"])
            self._page.part()
        else:
            self._page.put(REMOVED + found["after"])
        return True

    @property
    def _at_line_start(self) -> bool:
        return bool(_LINE_START.fullmatch(self._page.line))


@dataclass(frozen=True, slots=True)
class _Fence:
    marks: str
    indent: int
    closing: re.Pattern[str]
    opening: re.Pattern[str]

    @staticmethod
    def of(marks: str, indent: int) -> "_Fence":
        """Its lines are indented by as much, which is taken off them."""
        deep = min(indent, _DEEPEST)
        before, mark = f" {{0,{deep + 3}}}", marks[0]
        return _Fence(
            marks,
            deep,
            re.compile(rf"{before}{mark}{{{len(marks)},}}[ \t]*(?:\n|\Z)"),
            re.compile(rf"{before}{mark}*[ \t]*\Z"),
        )


_ACTIONS: Mapping[Kind, Callable[[MarkerScanner, re.Match[str]], bool]] = {
    "fence": MarkerScanner._open_fence,
    "code": MarkerScanner._code,
    "stray": MarkerScanner._stray,
    "escape": MarkerScanner._as_it_is,
    "image": MarkerScanner._nothing,
    "mark": MarkerScanner._apart,
    "definition": MarkerScanner._definition,
    "link": MarkerScanner._link,
    "marker": MarkerScanner._marker,
    "overlong": MarkerScanner._rounded,
    "cut": MarkerScanner._nothing,
    "bracket": MarkerScanner._bracket,
    "anchor": MarkerScanner._anchor,
    "autolink": MarkerScanner._url,
    "break": MarkerScanner._break,
    "tag": MarkerScanner._apart,
    "url": MarkerScanner._url,
}
