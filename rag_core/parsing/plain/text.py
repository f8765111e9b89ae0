"""Plain text, and what looks like reStructuredText."""

import re
from collections.abc import Iterator

from rag_core.parsing.encoding import decoded
from rag_core.parsing.sections import LONGEST_TITLE, Heading, first_line, nested
from rag_core.types import Document

VERSION = 1

_RULE = re.compile(r"""^([=\-~^"'*+#])\1{2,}[ \t]*$""", re.MULTILINE)


class TextParser:
    def parse(self, uri: str, body: bytes) -> Document:
        text = decoded(body)
        headings = list(_headings(text))
        sections = nested(headings)
        return Document(uri=uri, text=text, title=_title(text, headings), sections=sections)


def _title(text: str, headings: list[Heading]) -> str:
    begin = len(text) - len(text.lstrip())
    if headings and not text[: headings[0].start].strip():
        return headings[0].text
    _, _, rest = text[begin:].partition("\n")
    return first_line(text) if rest and not rest.partition("\n")[0].strip() else ""


def _headings(text: str) -> Iterator[Heading]:
    """Underlined lines, also overlined ones. The first style met is the outermost level, as in reStructuredText."""
    styles: list[str] = []
    for rule in _RULE.finditer(text):
        start, title, over = _above(text, rule.start())
        if not _titles(title, rule[0].rstrip()) or not _opens(over, rule[0].rstrip()):
            continue
        style = rule[1] + ("/" if over else "")
        styles += [style] if style not in styles else []
        yield Heading(styles.index(style) + 1, title.strip(), start - len(over) - 1 if over else start)


def _above(text: str, rule: int) -> tuple[int, str, str]:
    """Where the line above the rule starts, that line, and the line above it."""
    if rule == 0:
        return 0, "", ""
    start = text.rfind("\n", 0, rule - 1) + 1
    over = text[text.rfind("\n", 0, start - 1) + 1 : start - 1] if start > 0 else ""
    return start, text[start : rule - 1], over


def _titles(line: str, rule: str) -> bool:
    title = line.strip()
    return 0 < len(title) <= LONGEST_TITLE and len(rule) + 2 >= len(title) and not _RULE.fullmatch(line)


def _opens(over: str, rule: str) -> bool:
    return not over.strip() or over.rstrip() == rule
