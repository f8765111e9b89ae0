"""The tokens that the filter of an answer finds in Markdown outside code.

The filter tries the tokens in the order of `TOKENS`. It takes a token if the pattern matches and more text could not
change the match. It waits for more text while the text so far is the beginning of a match. So the result does not
depend on the pieces in which the text arrives. Text without a token is plain text.
"""

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

MAX_HELD_LENGTH = 2000
"""Code points that the filter holds while it waits for more text."""

Kind: TypeAlias = Literal[
    "plain",
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
]


@dataclass(frozen=True, slots=True)
class Token:
    """`first` holds the characters that it can begin with; `max_length` is in code points."""

    kind: Kind
    first: str
    pattern: "regex.Pattern[str]"
    max_length: int = MAX_HELD_LENGTH


_BRACKETS = regex.escape(OPENING_BRACKETS + CLOSING_BRACKETS)
# Code that reads the same if it is filtered: no reader has to decide whether it is code.
_HARMLESS_CODE = rf"(?P<run>`++)(?:(?!//|www\.)[^`<|{_BRACKETS}\n])*+(?P=run)(?!`)"
_BRACKET_FREE = r"[^\[\]`\n]*+"
_LINK_TEXT = (
    rf"(?:!\[{_BRACKET_FREE}\]\([^\s()`]*+\)|[^\[\]\\`\n]|\\[^\n]|\[{_BRACKET_FREE}\](?!\()|{_HARMLESS_CODE})*+"
)
_PARENTHESES = r"\((?:[^()`\n]|\([^()`\n]*+\))*+\)"
_TARGET = r"(?:<(?P<angled>[^<>`\n]*+)>|(?P<target>(?:[^\s<>()`]|\([^\s<>()`]*+\))*+))"
_TITLE = r"(?:\"[^\"`\n]*+\"|'[^'`\n]*+'|\([^()`\n]*+\))"
_URL_CHARACTER = rf"[^\s<>`\"|){_BRACKETS}]"
_PUNCTUATION = r"(?:[.,;:?'*_~]|!(?!\[))"


def _token(kind: Kind, first: str, pattern: str, max_length: int = MAX_HELD_LENGTH) -> Token:
    return Token(kind, first, regex.compile(pattern, regex.IGNORECASE), max_length)


TOKENS = (
    _token("plain", "`", _HARMLESS_CODE),
    _token("plain", "\\", r"\\[\\`]"),
    _token("image", "!", rf"!\[{_LINK_TEXT}\]{_PARENTHESES}"),
    _token("exclamation_mark", "!", r"!(?=\[)"),
    _token("definition", "[", r"\[(?P<label>[\^\w -]{1,100}+)\]:[ \t]*+(?P<target>[^\s<>]*+)(?=\s|\Z)"),
    _token("link", "[", rf"\[(?P<text>{_LINK_TEXT})\]\([ \t]*+{_TARGET}(?:[ \t]++{_TITLE})?+[ \t]*+\)"),
    _token("marker", OPENING_BRACKETS, MARKER.pattern, MAX_MARKER_LENGTH),
    _token("overlong_marker", OPENING_BRACKETS, OVERLONG_MARKER.pattern, MAX_MARKER_LENGTH),
    _token("truncated_marker", OPENING_BRACKETS, TRUNCATED_MARKER.pattern, MAX_MARKER_LENGTH),
    _token("closing_bracket", CLOSING_BRACKETS, "."),
    _token("image", "<", r"<img\b[^>`]*+>"),
    _token("anchor", "<", rf"<a\s(?P<attributes>[^<>`]*+)>(?P<text>(?:[^<`]|{_HARMLESS_CODE})*+)</a\s*+>"),
    _token("autolink", "<", r"<(?P<target>(?:https?|ftp)://[^\s<>`]*+)>(?P<after>)"),
    _token("harmless_tag", "<", r"</?(?:br|su[bp])\s?/?>"),
    _token("tag_start", "<", r"<(?=[a-z/!?])"),
    _token(
        "url",
        "hHfFwW",
        rf"(?P<target>(?:(?:https?|ftp)://|www\.){_URL_CHARACTER}*(?<!{_PUNCTUATION}))"
        rf"(?P<after>{_PUNCTUATION}*+)(?!{_URL_CHARACTER})",
    ),
)

TOKENS_BY_FIRST = {
    first: tuple(token for token in TOKENS if first in token.first)
    for first in {*"".join(token.first for token in TOKENS)}
}
PLAIN_TEXT = regex.compile(rf"[^\s~{regex.escape(''.join(sorted(TOKENS_BY_FIRST)))}]++")
