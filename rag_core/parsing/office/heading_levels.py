"""Heading levels as Word documents and RTF state them."""

import re

_HEADING_STYLE = re.compile(r"heading ?([1-9])")
_BODY_TEXT = 9


def style_level(style: str) -> int:
    """The level of a built-in heading style, by its name in lower case: 1 for `title`; 0 for any other style."""
    heading = _HEADING_STYLE.fullmatch(style)
    return int(heading[1]) if heading else int(style == "title")


def outline_level(number: int) -> int:
    """The heading level of an outline level, which counts from 0; 0 if the number means body text."""
    return number + 1 if 0 <= number < _BODY_TEXT else 0
