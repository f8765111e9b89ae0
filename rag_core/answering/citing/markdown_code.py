"""Code in Markdown, and where it is, as markdown-it reads it: in CommonMark with tables and without."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline, backtick
from markdown_it.token import Token


@dataclass(frozen=True, slots=True)
class Code:
    """Code with its backticks, or the lines of a block of code with its fences. `start` is an offset in code points."""

    start: int
    text: str
    is_block: bool

    @property
    def end(self) -> int:
        return self.start + len(self.text)


@dataclass(frozen=True, slots=True)
class Reading:
    """What all readers find in a text.

    `open_fence` holds the marks of the fence that is open at the end and in no list or quote. It is empty if no fence
    is open, and None if the readers disagree or the fence is in a list or a quote.
    """

    code: frozenset[Code]
    open_fence: str | None


def find_code(text: str) -> list[Code]:
    """The code in a text that is going to be filtered, in order. HTML and links count as text: most are removed."""
    return list(_find_code(_TEXT_READER.parse(text), text))


def read_markdown(text: str, next_line: str) -> Reading:
    """Reads a text before a line that ends with "x" and begins a paragraph or the item of a list."""
    readers = _READERS if "|" in text else _READERS[:1]
    documents = [reader.parse(f"{text}\n{next_line}") for reader in readers]
    fences = {_open_fence(document) for document in documents}
    code = (frozenset(_find_code(document, text)) for document in documents)
    return Reading(frozenset.intersection(*code), fences.pop() if len(fences) == 1 else None)


def _open_fence(document: list[Token]) -> str | None:
    last = [token for token in document if token.nesting == 0][-1]
    if last.type == "fence" and last.level == 0:
        return last.markup
    return "" if (last.type, last.content) == ("inline", "x") else None


def _find_code(document: list[Token], text: str) -> Iterator[Code]:
    source = _Source(text)
    for before, token in pairwise([Token("", "", 0), *document]):
        if token.type in ("fence", "code_block"):
            yield source.find_block(token)
        elif token.type == "inline":
            yield from source.find_spans(token, is_cell=before.type in ("th_open", "td_open"))


class _Source:
    """The text of a document, in which the code of its tokens is found. They must be passed in order."""

    def __init__(self, text: str) -> None:
        self._text, self._lines = text, text.split("\n")
        self._starts = [0, *accumulate(len(line) + 1 for line in self._lines)]
        self._position = 0

    def find_block(self, token: Token) -> Code:
        first, end = token.map or (0, 0)
        return Code(self._starts[first], "\n".join(self._lines[first:end]).rstrip(), is_block=True)

    def find_spans(self, token: Token, is_cell: bool) -> Iterator[Code]:
        """The spans of code in a paragraph, heading or cell, except those that its lines do not contain literally."""
        first, end = token.map or (0, 0)
        content = token.content.replace("|", r"\|") if is_cell else token.content
        shifts, length = list[int](), 0
        for line, (start, stop) in zip(content.split("\n"), pairwise(self._starts[first : end + 1]), strict=False):
            found = self._text.find(line.strip(" \t"), max(start, self._position), stop)
            if found < 0:
                return
            self._position = found + len(line.strip(" \t"))
            shifts.append(found - length - (len(line) - len(line.lstrip(" \t"))))
            length += len(line) + 1
        for code in token.children or []:
            if code.type == "code_inline":
                start, stop = (offset + is_cell * token.content.count("|", 0, offset) for offset in code.meta["span"])
                start += shifts[content.count("\n", 0, start)]
                stop += shifts[content.count("\n", 0, stop)]
                yield Code(start, self._text[start:stop], is_block=False)


def _record_span(state: StateInline, silent: bool) -> bool:
    """Parses code as markdown-it does, and notes where it is in the text of its paragraph, heading or cell."""
    start = state.pos
    is_parsed = backtick(state, silent)
    if not silent and state.tokens and state.tokens[-1].type == "code_inline":
        state.tokens[-1].meta.setdefault("span", (start, state.pos))
    return is_parsed


def _build_reader(*rules: str, html: bool = True) -> MarkdownIt:
    reader = MarkdownIt("commonmark", {"html": html}).enable(rules)
    reader.inline.ruler.at("backticks", _record_span)
    return reader


_READERS = [_build_reader(), _build_reader("table")]
_TEXT_READER = _build_reader(html=False).disable(["autolink", "link", "image"])
