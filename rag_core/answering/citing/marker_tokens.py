"""What the filter of an answer looks for in Markdown: one pattern for each thing, and one for its beginnings.

A thing is taken when its pattern matches and more text could not change the match; while its `opening` reaches to the
end of what is known, it may still come; otherwise the next row of the table is asked. So what a text becomes does not
depend on the pieces that it came in. What the table does not name is plain text.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from rag_core.answering.citing.markers import (
    CLOSING,
    CODE,
    LONGEST,
    MARKER,
    MARKER_CUT,
    MARKER_OPENING,
    MARKER_OVERLONG,
    OPENING,
)

LIMIT = 2000
"""Code points that are held back at the most, until they are decided."""

Kind: TypeAlias = Literal[
    "fence",
    "code",
    "stray",
    "escape",
    "image",
    "mark",
    "definition",
    "link",
    "marker",
    "overlong",
    "cut",
    "bracket",
    "anchor",
    "autolink",
    "break",
    "tag",
    "url",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """`first` are the characters that it can begin with."""

    kind: Kind
    first: str
    pattern: re.Pattern[str]
    opening: re.Pattern[str] = re.compile(r"(?!)")
    limit: int = LIMIT


_FLAT = r"[^\[\]\n]*+"
_TEXT = rf"(?:!\[{_FLAT}\]\([^\s()]*+\)|[^\[\]\\\n]|\\[^\n]|\[{_FLAT}\](?!\())*+"
_TEXT_OPENING = rf"{_TEXT}(?:\\|\[{_FLAT})?+"
_ROUND = r"\((?:[^()\n]|\([^()\n]*+\))*+\)"
_TARGET = r"(?:<(?P<angled>[^<>\n]*+)>|(?P<target>(?:[^\s<>()]|\([^\s<>()]*+\))*+))"
_TITLE = r"(?:\"[^\"\n]*+\"|'[^'\n]*+'|\([^()\n]*+\))"
_TARGET_OPENING = (
    r"[ \t]*+(?:<[^<>\n]*+>?|(?:[^\s<>()]|\([^\s<>()]*+\))*+(?:\([^\s<>()]*+)?)(?:[ \t]++(?:[\"'(][^\n]*+)?)?"
)
_NUMBERED_ASIDE = rf"(?!{MARKER.pattern}\((?![ \t<]*(?:[a-z][a-z0-9+.-]*:|[/\\])))"
_URL_BEGINNINGS = ("https://", "http://", "ftp://", "www.")
_URL_CHARACTER = rf"[^\s<>`\"|){re.escape(OPENING + CLOSING)}]"
_STOP = r"[.,;:!?'*_~]"


def _beginnings(words: Iterable[str]) -> str:
    """Matches what is cut off of one of these words."""
    return "|".join(sorted({re.escape(word[:length]) for word in words for length in range(1, len(word) + 1)}))


TOKENS = (
    Token(
        kind="fence",
        first="`~",
        pattern=re.compile(
            r"(?P<marks>`{3,}+)(?P<info>[^`\n]{0,200}+)(?!`)\n?|(?P<tildes>~{3,}+)(?P<words>(?:[^~\n][^\n]{0,199}+)?+)\n?"
        ),
        opening=re.compile(r"(?:`{1,2}|~{1,2})\Z"),
    ),
    Token(
        kind="code",
        first="`",
        pattern=CODE,
        opening=re.compile(r"`[^\n]*+\Z"),
    ),
    Token(kind="stray", first="`", pattern=re.compile(r"`++")),
    Token(kind="escape", first="\\", pattern=re.compile(r"\\[\\`]"), opening=re.compile(r"\\\Z")),
    Token(
        kind="image",
        first="!",
        pattern=re.compile(rf"!\[{_TEXT}\]{_ROUND}"),
        opening=re.compile(rf"!(?:\[{_TEXT_OPENING}(?:\](?:\([^\n]*+)?)?)?\Z"),
    ),
    Token(kind="mark", first="!", pattern=re.compile(r"!(?=\[)")),
    Token(
        kind="definition",
        first="[",
        pattern=re.compile(r"\[(?P<label>[\^\w -]{1,100}+)\]:[ \t]*+(?P<target>[^\s<>]*+)(?=\s|\Z)"),
        opening=re.compile(r"\[(?:[\^\w -]{1,100}+(?:\](?::[ \t]*+[^\s<>]*+)?)?)?\Z"),
    ),
    Token(
        kind="link",
        first="[",
        pattern=re.compile(
            rf"{_NUMBERED_ASIDE}\[(?P<text>{_TEXT})\]\([ \t]*+{_TARGET}(?:[ \t]++{_TITLE})?+[ \t]*+\)", re.I
        ),
        opening=re.compile(rf"\[{_TEXT_OPENING}(?:\](?:\({_TARGET_OPENING})?)?\Z"),
    ),
    Token(kind="marker", first=OPENING, pattern=MARKER, opening=MARKER_OPENING, limit=LONGEST),
    Token(kind="overlong", first=OPENING, pattern=MARKER_OVERLONG, limit=LONGEST),
    Token(kind="cut", first=OPENING, pattern=MARKER_CUT, limit=LONGEST),
    Token(kind="bracket", first=CLOSING, pattern=re.compile(r"."), opening=re.compile(r".\Z")),
    Token(
        kind="image",
        first="<",
        pattern=re.compile(r"<img\b[^>]*+>", re.I),
        opening=re.compile(r"<(?:i(?:m(?:g(?:\b[^>]*+)?)?)?)?\Z", re.I),
    ),
    Token(
        kind="anchor",
        first="<",
        pattern=re.compile(r"<a\s(?P<attributes>[^<>]*+)>(?P<text>[^<]*+)</a\s*+>", re.I),
        opening=re.compile(r"<(?:a(?:\s[^<>]*+(?:>[^<]*+(?:<(?:/(?:a\s*+)?)?)?)?)?)?\Z", re.I),
    ),
    Token(
        kind="autolink",
        first="<",
        pattern=re.compile(r"<(?P<target>(?:https?|ftp)://[^\s<>]*+)>(?P<after>)", re.I),
        opening=re.compile(rf"<(?:(?:https?|ftp)://[^\s<>]*+|{_beginnings(_URL_BEGINNINGS)})\Z", re.I),
    ),
    Token(
        kind="break",
        first="<",
        pattern=re.compile(r"</?(?:br|su[bp])\s?/?>", re.I),
        opening=re.compile(r"</?(?:b(?:r\s?/?)?|s(?:u(?:[bp]\s?/?)?)?)?\Z", re.I),
    ),
    Token(kind="tag", first="<", pattern=re.compile(r"<(?=[a-z/!?])", re.I), opening=re.compile(r"<\Z")),
    Token(
        kind="url",
        first="hHfFwW",
        pattern=re.compile(
            rf"(?P<target>(?:(?:https?|ftp)://|www\.){_URL_CHARACTER}*(?<!{_STOP}))(?P<after>{_STOP}*+)(?!{_URL_CHARACTER})",
            re.I,
        ),
        opening=re.compile(rf"(?:{_beginnings(_URL_BEGINNINGS)}|www\.{_STOP}*+)\Z", re.I),
    ),
)

BY_FIRST = {
    first: tuple(token for token in TOKENS if first in token.first)
    for first in {*"".join(token.first for token in TOKENS)}
}
PLAIN = re.compile(rf"[^\s{re.escape(''.join(sorted(BY_FIRST)))}]++")
