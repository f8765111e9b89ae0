"""Plain text, with the headings of reStructuredText."""

import re
from collections.abc import Iterator

from rag_core.parsing.encoding import decode_text
from rag_core.parsing.sections import MAX_TITLE_CHARS, Heading, sections_from_headings, title_from_first_line
from rag_core.types import Document

VERSION = 1

_RULE = re.compile(r"""^([=\-~^"'*+#])\1{2,}[ \t]*$""", re.MULTILINE)


class TextParser:
    def parse(self, uri: str, body: bytes) -> Document:
        text = decode_text(body)
        headings = list(_find_headings(text))
        _, _, following = text.lstrip().partition("\n")
        if headings and not text[: headings[0].start].strip():
            title = headings[0].text
        else:  # a single line at the start is a title; the first line of a paragraph is not
            title = title_from_first_line(text) if following and not following.partition("\n")[0].strip() else ""
        return Document(uri=uri, text=text, title=title, sections=sections_from_headings(headings))


def _find_headings(text: str) -> Iterator[Heading]:
    """The lines above a rule, with or without a rule above them, too.

    As in reStructuredText, the style of the first heading is the outermost level.
    """
    styles: list[str] = []
    for match in _RULE.finditer(text):
        rule = match[0].rstrip()
        # the line above the rule starts at `start`; `overline` is the line above that one
        start = text.rfind("\n", 0, max(match.start() - 1, 0)) + 1
        line = text[start : max(match.start() - 1, 0)]
        overline = text[text.rfind("\n", 0, start - 1) + 1 : start - 1] if start > 0 else ""
        title = line.strip()
        can_be_title = 0 < len(title) <= MAX_TITLE_CHARS and len(rule) + 2 >= len(title) and not _RULE.fullmatch(line)
        if not can_be_title or (overline.strip() and overline.rstrip() != rule):
            continue
        style = match[1] + ("/" if overline else "")
        styles += [style] if style not in styles else []
        yield Heading(styles.index(style) + 1, title, start - len(overline) - 1 if overline else start)
