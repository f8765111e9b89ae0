"""Code in an answer, found as readers of Markdown find it: with markdown-it, in CommonMark with and without tables.

Code passes the filter unchanged, so a text counts as code only if both readings agree.
"""

from collections.abc import Iterator
from typing import Literal

from markdown_it import MarkdownIt
from markdown_it.token import Token

_PLAIN, _TABLES = MarkdownIt("commonmark"), MarkdownIt("commonmark").enable("table")
_NOTHING = Token("", "", 0)
_MAX_PARSED, _MAX_PARSED_PER_CHARACTER = 20_000, 20


class CodeParser:
    """A parser of the blocks of one answer. `length` is the length of the answer so far.

    It parses at most 20 code points for each code point of the answer, plus 20,000. Beyond that nothing is code.
    """

    def __init__(self) -> None:
        self._parsed = 0

    def ends_with_code(self, text: str, code: str, length: int) -> bool:
        """True if the text, which ends with the code and its backticks, ends so for its readers, too."""
        backticks = code[: len(code) - len(code.lstrip("`"))]
        content = code[len(backticks) : -len(backticks)]
        if content.strip() and content[0] == content[-1] == " ":
            content = content[1:-1]
        for leaves in self._parse(text, length):
            leaf = next((leaf for leaf in reversed(leaves) if leaf.content), _NOTHING)
            last = leaf.children[-1] if leaf.children else _NOTHING
            if (last.type, last.markup, last.content) != ("code_inline", backticks, content):
                return False
        return True

    def fence_level(self, text: str, length: int) -> int:
        """The number of blocks around the fence that the last line opens; -1 if it opens none."""
        lines = text.count("\n")
        fences = [leaves[-1] for leaves in self._parse(text, length)]
        return fences[0].level if all(_is_fence(fence, lines - 1, lines) for fence in fences) else -1

    def fence_line(self, text: str, length: int) -> Literal["code", "end", "outside"]:
        """What the last line is, if the line before it opens a fence."""
        lines = text.count("\n")
        fences = [leaves[-1] for leaves in self._parse(text, length)]
        if not all(_is_fence(fence, lines - 2, lines) for fence in fences):
            return "outside"
        return "code" if all(fence.content for fence in fences) else "end"

    def is_complete(self, text: str, length: int) -> bool:
        """True if the text, which ends with an empty line, cannot change how the next line is read."""
        if "```" not in text and "~~~" not in text:
            return True
        leaves = [leaves[-1] for leaves in self._parse(text + "x", length)]
        return all(leaf.type == "inline" and leaf.level == 1 and leaf.content == "x" for leaf in leaves)

    def _parse(self, text: str, length: int) -> Iterator[list[Token]]:
        """Yields what each reader finds in the text, without the beginnings and ends of blocks."""
        for reader in (_PLAIN, _TABLES) if "|" in text else (_TABLES,):
            self._parsed += len(text)
            is_allowed = self._parsed <= _MAX_PARSED + _MAX_PARSED_PER_CHARACTER * length
            tokens = reader.parse(text) if is_allowed else []
            yield [_NOTHING, *(token for token in tokens if token.nesting == 0)]


def _is_fence(token: Token, start: int, end: int) -> bool:
    return token.type == "fence" and token.map == [start, end]
