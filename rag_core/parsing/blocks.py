"""Blocks of Markdown, and the text that they make."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

_DEEPEST = 6
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_SPACES = re.compile(r"[ \t]*\n[ \t]*")
# What the text of a paragraph would open without being meant to: a heading, a rule, a fence
_OPENS = re.compile(r"^(?=#{1,6}(?:[ \t]|$)|={2,}[ \t]*$|-{2,}[ \t]*$|`{3}|~{3})", re.MULTILINE)
_MINUTE = re.compile(r"(\d{4}-\d\d-\d\d)(?:T(\d\d:\d\d))?")
_PAGE_NUMBER = re.compile(r"[\W\d_]*(?:page|seite|p)?[\W\d_]*(?:of|von)?[\W\d_]*", re.IGNORECASE)


class Block(NamedTuple):
    """`listed` blocks that follow each other stand on consecutive lines."""

    text: str
    listed: bool = False


def heading(level: int, text: str) -> Block:
    line = " ".join(text.split())
    return Block(f"{'#' * min(level, _DEEPEST)} {line}" if line else "")


def paragraph(text: str) -> Block:
    return Block(_OPENS.sub(r"\\", _SPACES.sub("\n", text.strip())))


def listed(text: str, marker: str = "-", level: int = 0) -> Block:
    """`level` counts from 0. What is no Markdown marker stands behind a bullet."""
    line = " ".join(text.split())
    bullet = marker if marker == "-" or re.fullmatch(r"\d{1,9}[.)]", marker) else f"- {marker}"
    return Block(f"{'    ' * level}{bullet} {line}" if line else "", listed=True)


def comment(author: str, text: str, date: str = "") -> Block:
    """`date` is in ISO 8601, and told to the minute."""
    said = " ".join(text.split())
    moment = _MINUTE.match(date)
    by = ", ".join(each for each in (author, " ".join(filter(None, moment.groups())) if moment else "") if each)
    return Block(f"> {by}: {said}" if by and said else f"> {said}" if said else "")


def spread(text: str) -> list[Block]:
    """A paragraph a line."""
    return [paragraph(line) for line in text.splitlines()]


def joined(blocks: Iterable[Block]) -> str:
    """No NUL, no lone surrogate, no control character but tabs and newlines."""
    return _CONTROL.sub("", "".join(_separated([block for block in blocks if block.text])))


def is_page_number(text: str) -> bool:
    return _PAGE_NUMBER.fullmatch(text) is not None


def clean(text: str) -> str:
    return _CONTROL.sub("", text).strip()


def _separated(blocks: Sequence[Block]) -> Iterator[str]:
    for place, block in enumerate(blocks, 1):
        together = block.listed and place < len(blocks) and blocks[place].listed
        yield block.text
        yield "\n" if together or place == len(blocks) else "\n\n"
