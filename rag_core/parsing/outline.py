"""The headings and sections of Markdown, into which most parsers convert a text.

The VERSION of `markdown` covers this module.
"""

import re
from dataclasses import replace

from rag_core.parsing.fences import FENCE, FenceState
from rag_core.parsing.sections import Heading, sections_from_headings
from rag_core.types import Document

_MARK = re.compile(
    rf"^(?:{FENCE}| {{0,3}}(?:(?P<hashes>#{{1,6}})(?P<heading>[ \t][^\n]*)?|(?P<rule>={{2,}}|-{{2,}})[ \t]*))$",
    re.MULTILINE,
)
_MAX_HEADING_CHARS = 300
_NOT_PARAGRAPH = re.compile(r" {4}|\t| {0,3}(?:[-*+>|#]|\d+[.)] |```|~~~|$)")
_CLOSING_HASHES = re.compile(r"(?:^|[ \t])#+[ \t]*$")
# A link, an address that is one, and what generators write after a heading: `{#anchor}`, `{.class}`, `{: ...}`. Paths
# and types keep their `{id}` and `<T>`; inline HTML was converted before.
_LINK = re.compile(r"!?\[([^\[\]]*)\]\([^()]*\)|<((?:https?|mailto):[^<>\s]*)>|\{[#.:][^{}]*\}[ \t]*$")
_EMPHASIS = re.compile(r"[*`]+|\\(?=[!-/:-@\[-`{-~])|(?<!\w)_+|_+(?!\w)")


def with_outline(document: Document) -> Document:
    """The document with the sections of its Markdown; its title is the first level-1 heading, else the first heading.

    An existing title is kept.
    """
    text, fence = document.text, FenceState()
    headings: list[Heading] = []
    for mark in _MARK.finditer(text):
        if fence.advance(mark):
            continue
        if mark["rule"]:
            heading = _setext_heading(text, mark)
        else:
            line = _CLOSING_HASHES.sub("", mark["heading"] or "")
            heading = Heading(len(mark["hashes"]), _strip_inline_markup(line), mark.start())
        if 0 < len(heading.text) <= _MAX_HEADING_CHARS:
            headings.append(heading)
    title = next((heading.text for heading in headings if heading.level == 1), headings[0].text if headings else "")
    return replace(document, sections=sections_from_headings(headings), title=document.title or title)


def _setext_heading(text: str, rule: re.Match[str]) -> Heading:
    """The heading above a rule; its text is empty unless that is a single line.

    The rule below a longer paragraph was meant as a rule.
    """
    end = rule.start() - 1
    start = text.rfind("\n", 0, max(end, 0)) + 1
    line = text[start : max(end, 0)]
    line_above = text[text.rfind("\n", 0, max(start - 1, 0)) + 1 : max(start - 1, 0)]
    is_single = not line_above.strip() or line_above.lstrip().startswith("#")
    is_heading = is_single and not _NOT_PARAGRAPH.match(line)
    return Heading(1 if rule["rule"].startswith("=") else 2, _strip_inline_markup(line) if is_heading else "", start)


def _strip_inline_markup(heading: str) -> str:
    return " ".join(_EMPHASIS.sub("", _LINK.sub(r"\1\2", heading)).split())
