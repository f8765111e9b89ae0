"""The tokens that the filter of an answer finds in Markdown, each with a pattern for it and one for its beginnings.

The filter tries the tokens in the order of `TOKENS`. It takes a token if the pattern matches and more text could not
change the match. It waits for more text while `incomplete` matches up to the end of the text so far. So the result does
not depend on the pieces in which the text arrives. Text without a token is plain text.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from rag_core.answering.citing.markers import (
    CLOSING_BRACKETS,
    INCOMPLETE_MARKER,
    INLINE_CODE,
    MARKER,
    MAX_MARKER_LENGTH,
    OPENING_BRACKETS,
    OVERLONG_MARKER,
    TRUNCATED_MARKER,
)

MAX_HELD_LENGTH = 2000
"""Code points that the filter holds while it waits for more text."""

Kind: TypeAlias = Literal[
    "fence",
    "code",
    "stray_backticks",
    "escape",
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """`first` holds the characters that it can begin with; `max_length` is in code points."""

    kind: Kind
    first: str
    pattern: re.Pattern[str]
    incomplete: re.Pattern[str] = re.compile(r"(?!)")
    max_length: int = MAX_HELD_LENGTH


_BRACKET_FREE = r"[^\[\]\n]*+"
_LINK_TEXT = rf"(?:!\[{_BRACKET_FREE}\]\([^\s()]*+\)|[^\[\]\\\n]|\\[^\n]|\[{_BRACKET_FREE}\](?!\())*+"
_INCOMPLETE_LINK_TEXT = rf"{_LINK_TEXT}(?:\\|\[{_BRACKET_FREE})?+"
_PARENTHESES = r"\((?:[^()\n]|\([^()\n]*+\))*+\)"
_TARGET = r"(?:<(?P<angled>[^<>\n]*+)>|(?P<target>(?:[^\s<>()]|\([^\s<>()]*+\))*+))"
_TITLE = r"(?:\"[^\"\n]*+\"|'[^'\n]*+'|\([^()\n]*+\))"
_INCOMPLETE_TARGET = (
    r"[ \t]*+(?:<[^<>\n]*+>?|(?:[^\s<>()]|\([^\s<>()]*+\))*+(?:\([^\s<>()]*+)?)(?:[ \t]++(?:[\"'(][^\n]*+)?)?"
)
# [1](as above) is a marker and a remark, not a link, unless the parentheses contain a URL or a path.
_NOT_A_MARKER = rf"(?!{MARKER.pattern}\((?![ \t<]*(?:[a-z][a-z0-9+.-]*:|[/\\])))"
_URL_STARTS = ("https://", "http://", "ftp://", "www.")
_URL_CHARACTER = rf"[^\s<>`\"|){re.escape(OPENING_BRACKETS + CLOSING_BRACKETS)}]"
_PUNCTUATION = r"[.,;:!?'*_~]"


def _prefix_pattern(words: Iterable[str]) -> str:
    """A pattern of all prefixes of the words, including the words themselves."""
    return "|".join(sorted({re.escape(word[:length]) for word in words for length in range(1, len(word) + 1)}))


TOKENS = (
    Token(
        kind="fence",
        first="`~",
        pattern=re.compile(
            r"(?P<marks>`{3,}+)(?P<info>[^`\n]{0,200}+)(?!`)\n?|(?P<tildes>~{3,}+)(?P<words>(?:[^~\n][^\n]{0,199}+)?+)\n?"
        ),
        incomplete=re.compile(r"(?:`{1,2}|~{1,2})\Z"),
    ),
    Token(
        kind="code",
        first="`",
        pattern=INLINE_CODE,
        incomplete=re.compile(r"`[^\n]*+\Z"),
    ),
    Token(kind="stray_backticks", first="`", pattern=re.compile(r"`++")),
    Token(kind="escape", first="\\", pattern=re.compile(r"\\[\\`]"), incomplete=re.compile(r"\\\Z")),
    Token(
        kind="image",
        first="!",
        pattern=re.compile(rf"!\[{_LINK_TEXT}\]{_PARENTHESES}"),
        incomplete=re.compile(rf"!(?:\[{_INCOMPLETE_LINK_TEXT}(?:\](?:\([^\n]*+)?)?)?\Z"),
    ),
    Token(kind="exclamation_mark", first="!", pattern=re.compile(r"!(?=\[)")),
    Token(
        kind="definition",
        first="[",
        pattern=re.compile(r"\[(?P<label>[\^\w -]{1,100}+)\]:[ \t]*+(?P<target>[^\s<>]*+)(?=\s|\Z)"),
        incomplete=re.compile(r"\[(?:[\^\w -]{1,100}+(?:\](?::[ \t]*+[^\s<>]*+)?)?)?\Z"),
    ),
    Token(
        kind="link",
        first="[",
        pattern=re.compile(
            rf"{_NOT_A_MARKER}\[(?P<text>{_LINK_TEXT})\]\([ \t]*+{_TARGET}(?:[ \t]++{_TITLE})?+[ \t]*+\)", re.I
        ),
        incomplete=re.compile(rf"\[{_INCOMPLETE_LINK_TEXT}(?:\](?:\({_INCOMPLETE_TARGET})?)?\Z"),
    ),
    Token(
        kind="marker",
        first=OPENING_BRACKETS,
        pattern=MARKER,
        incomplete=INCOMPLETE_MARKER,
        max_length=MAX_MARKER_LENGTH,
    ),
    Token(kind="overlong_marker", first=OPENING_BRACKETS, pattern=OVERLONG_MARKER, max_length=MAX_MARKER_LENGTH),
    Token(kind="truncated_marker", first=OPENING_BRACKETS, pattern=TRUNCATED_MARKER, max_length=MAX_MARKER_LENGTH),
    Token(kind="closing_bracket", first=CLOSING_BRACKETS, pattern=re.compile(r"."), incomplete=re.compile(r".\Z")),
    Token(
        kind="image",
        first="<",
        pattern=re.compile(r"<img\b[^>]*+>", re.I),
        incomplete=re.compile(r"<(?:i(?:m(?:g(?:\b[^>]*+)?)?)?)?\Z", re.I),
    ),
    Token(
        kind="anchor",
        first="<",
        pattern=re.compile(r"<a\s(?P<attributes>[^<>]*+)>(?P<text>[^<]*+)</a\s*+>", re.I),
        incomplete=re.compile(r"<(?:a(?:\s[^<>]*+(?:>[^<]*+(?:<(?:/(?:a\s*+)?)?)?)?)?)?\Z", re.I),
    ),
    Token(
        kind="autolink",
        first="<",
        pattern=re.compile(r"<(?P<target>(?:https?|ftp)://[^\s<>]*+)>(?P<after>)", re.I),
        incomplete=re.compile(rf"<(?:(?:https?|ftp)://[^\s<>]*+|{_prefix_pattern(_URL_STARTS)})\Z", re.I),
    ),
    Token(
        kind="harmless_tag",
        first="<",
        pattern=re.compile(r"</?(?:br|su[bp])\s?/?>", re.I),
        incomplete=re.compile(r"</?(?:b(?:r\s?/?)?|s(?:u(?:[bp]\s?/?)?)?)?\Z", re.I),
    ),
    Token(kind="tag_start", first="<", pattern=re.compile(r"<(?=[a-z/!?])", re.I), incomplete=re.compile(r"<\Z")),
    Token(
        kind="url",
        first="hHfFwW",
        pattern=re.compile(
            rf"(?P<target>(?:(?:https?|ftp)://|www\.){_URL_CHARACTER}*(?<!{_PUNCTUATION}))"
            rf"(?P<after>{_PUNCTUATION}*+)(?!{_URL_CHARACTER})",
            re.I,
        ),
        incomplete=re.compile(rf"(?:{_prefix_pattern(_URL_STARTS)}|www\.{_PUNCTUATION}*+)\Z", re.I),
    ),
)

TOKENS_BY_FIRST = {
    first: tuple(token for token in TOKENS if first in token.first)
    for first in {*"".join(token.first for token in TOKENS)}
}
PLAIN_TEXT = re.compile(rf"[^\s{re.escape(''.join(sorted(TOKENS_BY_FIRST)))}]++")
