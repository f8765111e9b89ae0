"""Blocks of Markdown, and the text that they form.

The VERSIONs of `markdown`, `delimited` and `pdf` together cover this module.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

_MAX_LEVEL = 6
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_LINE_BREAK = re.compile(r"[ \t]*\n[ \t]*")
# Line starts that would make a paragraph's text a heading, a rule or a fence
_MARKUP_START = re.compile(r"^(?=#{1,6}(?:[ \t]|$)|={2,}[ \t]*$|-{2,}[ \t]*$|`{3}|~{3})", re.MULTILINE)
_BACKTICKS = re.compile("`+")
_MINUTE = re.compile(r"(\d{4}-\d\d-\d\d)(?:T(\d\d:\d\d))?")
_PAGE_NUMBER = re.compile(r"[\W\d_]*(?:page|seite|p)?[\W\d_]*(?:of|von)?[\W\d_]*", re.IGNORECASE)


class Block(NamedTuple):
    """A piece of Markdown. Consecutive list items are on consecutive lines; a blank line separates other blocks."""

    text: str
    is_list_item: bool = False


def heading(level: int, text: str) -> Block:
    line = " ".join(text.split())
    return Block(f"{'#' * min(level, _MAX_LEVEL)} {line}" if line else "")


def paragraph(text: str) -> Block:
    return Block(_MARKUP_START.sub(r"\\", _LINE_BREAK.sub("\n", text.strip())))


def list_item(text: str, marker: str = "-", level: int = 0) -> Block:
    """`level` counts from 0. A marker that Markdown does not know follows a bullet."""
    line = " ".join(text.split())
    bullet = marker if marker == "-" or re.fullmatch(r"\d{1,9}[.)]", marker) else f"- {marker}"
    return Block(f"{'    ' * level}{bullet} {line}" if line else "", is_list_item=True)


def code_block(code: str, language: str = "") -> Block:
    """Code between fences that are longer than any run of backticks in it."""
    content = code.strip("\n").rstrip()
    fence = "`" * max([3, *(len(run) + 1 for run in _BACKTICKS.findall(content))])
    return Block(f"{fence}{language}\n{content}\n{fence}" if content else "")


def comment(author: str, text: str, date: str = "") -> Block:
    """A quotation that names its author and its minute. `date` is in ISO 8601."""
    line = " ".join(text.split())
    match = _MINUTE.match(date)
    minute = " ".join(filter(None, match.groups())) if match else ""
    source = ", ".join(filter(None, (author, minute)))
    return Block(f"> {source}: {line}" if source and line else f"> {line}" if line else "")


def join_blocks(blocks: Iterable[Block]) -> str:
    """The blocks' text, without NULs, lone surrogates and control characters other than tabs and newlines."""
    filled = [block for block in blocks if block.text]
    parts: list[str] = []
    for position, block in enumerate(filled, 1):
        is_last = position == len(filled)
        continues_list = not is_last and block.is_list_item and filled[position].is_list_item
        parts += [block.text, "\n" if continues_list or is_last else "\n\n"]
    return _CONTROL.sub("", "".join(parts))


def is_page_number(text: str) -> bool:
    return _PAGE_NUMBER.fullmatch(text) is not None


def clean_text(text: str) -> str:
    """The text without NULs, lone surrogates, control characters and surrounding white space."""
    return _CONTROL.sub("", text).strip()
