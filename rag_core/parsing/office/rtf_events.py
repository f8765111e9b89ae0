"""RTF's bytes to what they say: words, decoded text, and what the group that they stand in is for."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from rag_core.parsing.office.symbols import symbol

_TOKEN = re.compile(
    rb"\\([a-zA-Z]{1,32})(-?\d{1,9})? ?|\\'([0-9a-fA-F]{2})|\\([^a-zA-Z])|([{}])|[\r\n]+|([^\\{}\r\n]+)|\\", re.DOTALL
)
_POWER = re.compile(r"[-\u2212+]?\d+")

_CHARACTERS = {
    **{"emdash": "\u2014", "endash": "\u2013", "lquote": "\u2018", "rquote": "\u2019", "bullet": "\u2022"},
    **{"ldblquote": "\u201c", "rdblquote": "\u201d", "emspace": " ", "enspace": " ", "qmspace": " "},
    **{"tab": " ", "line": "\n", "lbr": "\n", "page": "\n", "column": "\n", "softline": " "},
}
_SYMBOLS = {b"~": "\u00a0", b"_": "\u2011", b"{": "{", b"}": "}", b"\\": "\\"}
_CHARSETS = {
    **{77: "mac_roman", 128: "cp932", 129: "cp949", 130: "johab", 134: "gb18030", 136: "cp950", 161: "cp1253"},
    **{162: "cp1254", 163: "cp1258", 177: "cp1255", 178: "cp1256", 186: "cp1257", 204: "cp1251", 222: "cp874"},
    **{238: "cp1250", 255: "cp437"},
}
_CODE_PAGES = frozenset({437, 850, 852, 866, 874, 932, 936, 949, 950, *range(1250, 1259)})
_SYMBOL_CHARSET = 2

UNREAD = "unread"
FURNITURE = frozenset(["header", "headerl", "headerr", "headerf", "footer", "footerl", "footerr", "footerf"])
_NAMED = FURNITURE | frozenset(
    [
        "fonttbl",
        "stylesheet",
        "footnote",
        "annotation",
        "atnauthor",
        "listtext",
        "pntext",
        "info",
        "title",
        "author",
        "subject",
        "keywords",
        "doccomm",
        "creatim",
        "revtim",
    ]
)
_UNREAD = frozenset(
    [
        "colortbl",
        "pict",
        "objdata",
        "themedata",
        "datastore",
        "latentstyles",
        "listtable",
        "listoverridetable",
        "nonshppict",
        "fldinst",
        "sn",
        "sv",
        "tc",
        "xe",
        "rxe",
        "upr",
        "template",
        "background",
        "printim",
        "buptim",
    ]
)
# Behind a star, which lets a reader pass over what it does not know, but their text shows
_FLOWING = frozenset(["shpinst", "shptxt", "ud"])


class Event(NamedTuple):
    """A word with its number (`}` where a group for another kind of text has ended), or a text without a word.

    `kind` names what the group is for by the word that opens it; "" is the document's own text.
    """

    kind: str
    word: str
    number: int | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class _State:
    kind: str = ""
    encoding: str = ""
    fallbacks: int = 1
    hidden: bool = False
    raised: bool = False


def events(body: bytes) -> Iterator[Event]:
    """In the document's order, without hidden text and what no reader sees."""
    yield from _Reader(body).events()


class _Reader:
    def __init__(self, body: bytes) -> None:
        self._body, self._bytes = body, bytearray()
        self._state, self._outer = _State(), list[_State]()
        self._default = "cp1252"
        self._fonts: dict[int, str] = {}
        self._font = self._default_font = 0
        self._passing = self._high = 0
        self._starred = False

    def events(self) -> Iterator[Event]:
        place = 0
        while token := _TOKEN.match(self._body, place):
            place = token.end()
            word, number, code, character, brace, plain = token.groups()
            if word == b"bin":
                place += max(int(number or 0), 0)
            elif word is not None:
                yield from self._word(word.decode(), None if number is None else int(number))
            elif brace:
                yield from self._brace(brace)
            elif character is not None:
                yield from self._character(character)
            elif code is not None:
                self._take(bytes.fromhex(code.decode()))
            elif plain is not None:
                self._take(plain)
        yield from self._flushed()

    def _take(self, raw: bytes) -> None:
        """What follows a character in Unicode says it once more for old readers."""
        passed = min(self._passing, len(raw))
        self._passing -= passed
        if self._state.kind != UNREAD:
            self._bytes += raw[passed:]

    def _brace(self, brace: bytes) -> Iterator[Event]:
        yield from self._flushed()
        self._passing, self._starred = 0, False
        if brace == b"{":
            self._outer.append(self._state)
        elif self._outer:
            closed, self._state = self._state, self._outer.pop()
            if closed.kind != self._state.kind:
                yield Event(closed.kind, "}")

    def _character(self, character: bytes) -> Iterator[Event]:
        yield from self._flushed()
        if character == b"*":
            self._starred = True
        elif character in b"\r\n":
            yield Event(self._state.kind, "par")
        else:
            yield from self._text(_SYMBOLS.get(character, ""))

    def _word(self, word: str, number: int | None) -> Iterator[Event]:
        yield from self._flushed()
        starred, self._starred = self._starred, False
        if self._state.kind == UNREAD:
            return
        if word in _UNREAD or (starred and word not in _NAMED and word not in _FLOWING):
            self._state = replace(self._state, kind=UNREAD)
        elif word in _NAMED:
            self._state = replace(self._state, kind=word, hidden=False, raised=False)
        elif word == "u" and number is not None:
            yield from self._unicode(number)
        elif word in _CHARACTERS:
            yield from self._text(_CHARACTERS[word])
        else:
            self._format(word, number)
            yield Event(self._state.kind, word, number)

    def _unicode(self, number: int) -> Iterator[Event]:
        """Negative numbers are those above 32767; beyond 65535 there are two halves."""
        self._passing = self._state.fallbacks
        code = number & 0xFFFF
        if 0xD800 <= code < 0xDC00:
            self._high = code
        elif 0xDC00 <= code < 0xE000:
            pair = 0x10000 + ((self._high - 0xD800) << 10) + (code - 0xDC00)
            yield from self._text(chr(pair) if self._high else "\ufffd")
            self._high = 0
        else:
            yield from self._text(symbol("", code) if 0xF000 <= code < 0xF100 else chr(code))

    def _format(self, word: str, number: int | None) -> None:
        match word:
            case "ansicpg" | "mac" | "deff" | "f" | "fcharset" | "plain":
                self._encode(word, number or 0)
            case "uc":
                self._state = replace(self._state, fallbacks=min(max(number or 0, 0), 16))
            case "v" | "deleted":
                self._state = replace(self._state, hidden=number != 0)
            case "super" | "nosupersub" | "sub":
                self._state = replace(self._state, raised=word == "super" and number != 0)

    def _encode(self, word: str, number: int) -> None:
        """A font decides what bytes mean."""
        if word == "ansicpg" and number in _CODE_PAGES:
            self._default = f"cp{number}"
        elif word == "mac":
            self._default = "mac_roman"
        elif word == "deff":
            self._default_font = number
        elif word == "f" and self._state.kind == "fonttbl":
            self._font = number
        elif word == "fcharset" and self._state.kind == "fonttbl":
            self._fonts[self._font] = "symbol" if number == _SYMBOL_CHARSET else _CHARSETS.get(number, "")
        elif word == "f":
            self._state = replace(self._state, encoding=self._fonts.get(number, ""))
        elif word == "plain":
            encoding = self._fonts.get(self._default_font, "")
            self._state = replace(self._state, encoding=encoding, hidden=False, raised=False)

    def _flushed(self) -> Iterator[Event]:
        if self._bytes:
            raw, self._bytes = bytes(self._bytes), bytearray()
            yield from self._text(self._decoded(raw))

    def _decoded(self, raw: bytes) -> str:
        if self._state.kind == "fonttbl":
            name = raw.decode("latin-1").rstrip("; ")
            if self._fonts.get(self._font, "").startswith("symbol"):
                self._fonts[self._font] = f"symbol {name}"
            return ""
        encoding = self._state.encoding or self._default
        if encoding.startswith("symbol"):
            return "".join(symbol(encoding.removeprefix("symbol "), byte) for byte in raw)
        return raw.decode(encoding, "replace")

    def _text(self, text: str) -> Iterator[Event]:
        if text and not self._state.hidden and self._state.kind != UNREAD:
            raised = self._state.raised and _POWER.fullmatch(text)
            yield Event(self._state.kind, "", text=f"^{text}" if raised else text)
