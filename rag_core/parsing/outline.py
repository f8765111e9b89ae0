"""The headings and sections of Markdown, the form that most parsers give a text. Its version is `markdown`'s."""

import re
from collections.abc import Iterator
from dataclasses import replace

from rag_core.parsing.fences import FENCE, Fence
from rag_core.parsing.sections import Heading, nested
from rag_core.types import Document

_MARK = re.compile(
    rf"^(?:{FENCE}| {{0,3}}(?:(?P<hashes>#{{1,6}})(?P<heading>[ \t][^\n]*)?|(?P<rule>={{2,}}|-{{2,}})[ \t]*))$",
    re.MULTILINE,
)
_LONGEST_HEADING = 300
_NO_PARAGRAPH = re.compile(r" {4}|\t| {0,3}(?:[-*+>|#]|\d+[.)] |```|~~~|$)")
_CLOSING = re.compile(r"(?:^|[ \t])#+[ \t]*$")
# A link, an address that is one, and what generators write behind a heading: `{#anchor}`, `{.class}`, `{: ...}`. Paths
# and types keep their `{id}` and `<T>`; inline HTML is gone by then.
_LINK = re.compile(r"!?\[([^\[\]]*)\]\([^()]*\)|<((?:https?|mailto):[^<>\s]*)>|\{[#.:][^{}]*\}[ \t]*$")
_EMPHASIS = re.compile(r"[*`]+|\\(?=[!-/:-@\[-`{-~])|(?<!\w)_+|_+(?!\w)")


def outlined(document: Document) -> Document:
    """With the sections of its Markdown, titled by its first level-1 heading, else by its first."""
    headings = list(_headings(document.text))
    title = next((heading.text for heading in headings if heading.level == 1), headings[0].text if headings else "")
    return replace(document, sections=nested(headings), title=document.title or title)


def _headings(text: str) -> Iterator[Heading]:
    fence = Fence()
    for mark in _MARK.finditer(text):
        if fence.hides(mark):
            continue
        heading = _underlined(text, mark) if mark["rule"] else _atx(mark)
        if 0 < len(heading.text) <= _LONGEST_HEADING:
            yield heading


def _atx(mark: re.Match[str]) -> Heading:
    return Heading(len(mark["hashes"]), _plain(_CLOSING.sub("", mark["heading"] or "")), mark.start())


def _underlined(text: str, mark: re.Match[str]) -> Heading:
    """Only a line of its own: a rule below a longer paragraph was meant as a rule."""
    end = mark.start() - 1
    start = text.rfind("\n", 0, max(end, 0)) + 1
    line = text[start : max(end, 0)]
    before = text[text.rfind("\n", 0, max(start - 1, 0)) + 1 : max(start - 1, 0)]
    alone = not before.strip() or before.lstrip().startswith("#")
    is_heading = alone and not _NO_PARAGRAPH.match(line)
    return Heading(1 if mark["rule"].startswith("=") else 2, _plain(line) if is_heading else "", start)


def _plain(heading: str) -> str:
    return " ".join(_EMPHASIS.sub("", _LINK.sub(r"\1\2", heading)).split())
