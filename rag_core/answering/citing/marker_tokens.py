"""The tokens that the filter of an answer finds in Markdown outside code.

The filter tries the tokens in the order of `TOKENS`. It takes a token if the pattern matches and more text could not
change the match. It waits for more text while the text so far is the beginning of a match. So the result does not
depend on the pieces in which the text arrives. Text without a token is plain text.
"""

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

import regex  # unlike re, it reports whether a text is the beginning of a match

from rag_core.answering.citing.markers import (
    CLOSING_BRACKETS,
    MARKER,
    MAX_MARKER_LENGTH,
    OPENING_BRACKETS,
    OVERLONG_MARKER,
    TRUNCATED_MARKER,
)

CODE = "\x1a"
"""The character that stands for a span or a block of code; filtered texts contain no control characters."""

MAX_TOKEN_LENGTH = 2000
"""Code points that the filter holds while it waits for more text."""

Kind: TypeAlias = Literal[
    "image",
    "exclamation_mark",
    "definition",
    "link",
    "marker",
    "overlong_marker",
    "truncated_marker",
    "closing_bracket",
    "anchor",
    "autolink",
    "harmless_tag",
    "tag_start",
    "url",
    "fence",
]


@dataclass(frozen=True, slots=True)
class Token:
    """`first` holds the characters that it can begin with; `max_length` is in code points."""

    kind: Kind
    first: str
    pattern: "regex.Pattern[str]"
    max_length: int = MAX_TOKEN_LENGTH


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_BRACKETS = regex.escape(OPENING_BRACKETS + CLOSING_BRACKETS)
_BRACKET_FREE = r"[^\[\]`\n]*+"
_LINK_TEXT = rf"(?:!\[{_BRACKET_FREE}\]\([^\s()`{CODE}]*+\)|[^\[\]\\`\n]|\\[^\n]|\[{_BRACKET_FREE}\](?!\())*+"
_INSIDE = rf"[^()`{CODE}\n]"
_PARENTHESES = rf"\((?:{_INSIDE}|\({_INSIDE}*+\))*+\)"
_PATH = rf"[^\s<>()`{CODE}]"
_TARGET = rf"(?:<(?P<angled>[^<>`{CODE}\n]*+)>|(?P<target>(?:{_PATH}|\({_PATH}*+\))*+))"
_TITLE = rf"(?:\"[^\"`{CODE}\n]*+\"|'[^'`{CODE}\n]*+'|\({_INSIDE}*+\))"
_URL_CHARACTER = rf"(?:[^\s<>`{CODE}\\\"|){_BRACKETS}]|\\(?!`))"  # a backslash before a backtick stays
_PUNCTUATION = r"(?:[.,;:?'*_~]|!(?!\[))"


def _token(kind: Kind, first: str, pattern: str, max_length: int = MAX_TOKEN_LENGTH) -> Token:
    return Token(kind, first, regex.compile(pattern, regex.IGNORECASE), max_length)


TOKENS = (
    _token("image", "!", rf"!\[{_LINK_TEXT}\]{_PARENTHESES}"),
    _token("exclamation_mark", "!", r"!(?=\[)"),
    _token("definition", "[", rf"\[(?P<label>[\^\w -]{{1,100}}+)\]:[ \t]*+(?P<target>[^\s<>`{CODE}]*+)(?=\s|\Z)"),
    _token("link", "[", rf"\[(?P<text>{_LINK_TEXT})\]\([ \t]*+{_TARGET}(?:[ \t]++{_TITLE})?+[ \t]*+\)"),
    _token("marker", OPENING_BRACKETS, MARKER.pattern, MAX_MARKER_LENGTH),
    _token("overlong_marker", OPENING_BRACKETS, OVERLONG_MARKER.pattern, MAX_MARKER_LENGTH),
    _token("truncated_marker", OPENING_BRACKETS, TRUNCATED_MARKER.pattern, MAX_MARKER_LENGTH),
    _token("closing_bracket", CLOSING_BRACKETS, "."),
    _token("image", "<", rf"<img\b[^>`{CODE}]*+>"),
    _token("anchor", "<", rf"<a\s(?P<attributes>[^<>`{CODE}]*+)>(?P<text>[^<`]*+)</a\s*+>"),
    _token("autolink", "<", rf"<(?P<target>(?:https?|ftp)://[^\s<>`{CODE}]*+)>(?P<after>)"),
    _token("harmless_tag", "<", r"</?(?:br|su[bp])\s?/?>"),
    _token("tag_start", "<", r"<(?=[a-z/!?])"),
    _token(
        "url",
        "hHfFwW",
        rf"(?P<target>(?:(?:https?|ftp)://|www\.){_URL_CHARACTER}*(?<!{_PUNCTUATION}))"
        rf"(?P<after>{_PUNCTUATION}*+)(?!{_URL_CHARACTER})",
    ),
    _token("fence", "`~", r"`{3}|~{3}"),
)

TOKENS_BY_FIRST = {
    first: tuple(token for token in TOKENS if first in token.first)
    for first in {*"".join(token.first for token in TOKENS)}
}
PLAIN_TEXT = regex.compile(rf"[^\s{CODE}{regex.escape(''.join(sorted(TOKENS_BY_FIRST)))}]++")


def remove_controls(text: str) -> str:
    """Removes the control characters, except for tabs and ends of lines."""
    return _CONTROL.sub("", text)
