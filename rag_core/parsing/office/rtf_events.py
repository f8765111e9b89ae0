"""RTF as events: control words, decoded text, and the purpose of the group that they are in."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from rag_core.parsing.office.paragraph_text import is_exponent
from rag_core.parsing.office.symbols import symbol_character

_TOKEN = re.compile(
    rb"\\([a-zA-Z]{1,32})(-?\d{1,9})? ?|\\'([0-9a-fA-F]{2})|\\([^a-zA-Z])|([{}])|[\r\n]+|([^\\{}\r\n]+)|\\", re.DOTALL
)

_CHARACTERS = {
    **{"emdash": "\u2014", "endash": "\u2013", "lquote": "\u2018", "rquote": "\u2019", "bullet": "\u2022"},
    **{"ldblquote": "\u201c", "rdblquote": "\u201d", "emspace": " ", "enspace": " ", "qmspace": " "},
    **{"tab": " ", "line": "\n", "lbr": "\n", "page": "\n", "column": "\n", "softline": " "},
}
_ESCAPES = {b"~": "\u00a0", b"_": "\u2011", b"{": "{", b"}": "}", b"\\": "\\"}
_CHARSETS = {
    **{77: "mac_roman", 128: "cp932", 129: "cp949", 130: "johab", 134: "gb18030", 136: "cp950", 161: "cp1253"},
    **{162: "cp1254", 163: "cp1258", 177: "cp1255", 178: "cp1256", 186: "cp1257", 204: "cp1251", 222: "cp874"},
    **{238: "cp1250", 255: "cp437"},
}
_CODE_PAGES = frozenset({437, 850, 852, 866, 874, 932, 936, 949, 950, *range(1250, 1259)})
_SYMBOL_CHARSET = 2
_FONT_TABLE = "fonttbl"

FURNITURE = frozenset(["header", "headerl", "headerr", "headerf", "footer", "footerl", "footerr", "footerf"])
_SKIPPED_KIND = "skipped"
_READ_GROUPS = FURNITURE | frozenset(
    [
        _FONT_TABLE,
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
_SKIPPED_GROUPS = frozenset(
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
# A star before a group's word allows readers to skip a group that they do not know, but the text of these is visible
_STARRED_GROUPS = _READ_GROUPS | frozenset(["shpinst", "shptxt", "ud"])


class Event(NamedTuple):
    """A control word with its number, or a text without a word. The word `}` ends a group of another kind.

    `kind` is the word that states the purpose of the group, such as footnote; empty for the document's own text.
    """

    kind: str
    word: str
    number: int | None = None
    text: str = ""


class _Fonts:
    """The encodings of a document's fonts: the font of a text decides what its bytes mean.

    Symbol fonts have the encoding `symbol` with the name of the font.
    """

    def __init__(self) -> None:
        self.default_encoding = "cp1252"
        self._default_font = 0
        self._defined_font = 0
        self._encodings: dict[int, str] = {}

    @property
    def default_font_encoding(self) -> str:
        return self.encoding(self._default_font)

    def encoding(self, font: int) -> str:
        """The encoding of a font; empty if it is that of the document."""
        return self._encodings.get(font, "")

    def read_word(self, word: str, number: int, kind: str) -> None:
        match word:
            case "ansicpg" if number in _CODE_PAGES:
                self.default_encoding = f"cp{number}"
            case "mac":
                self.default_encoding = "mac_roman"
            case "deff":
                self._default_font = number
            case "f" if kind == _FONT_TABLE:
                self._defined_font = number
            case "fcharset" if kind == _FONT_TABLE:
                self._encodings[self._defined_font] = (
                    "symbol" if number == _SYMBOL_CHARSET else _CHARSETS.get(number, "")
                )

    def read_name(self, raw: bytes) -> None:
        """Reads a font's name in the font table: a symbol font is recognized by it."""
        if self.encoding(self._defined_font).startswith("symbol"):
            self._encodings[self._defined_font] = f"symbol {raw.decode('latin-1').rstrip('; ')}"


@dataclass(frozen=True, slots=True)
class _State:
    """What applies until the end of a group. `fallbacks` is the number of bytes that repeat a Unicode character."""

    kind: str = ""
    encoding: str = ""
    fallbacks: int = 1
    is_hidden: bool = False
    is_superscript: bool = False

    def after_word(self, word: str, number: int | None, fonts: _Fonts) -> "_State":
        """The state after a control word; the same one if the word does not change it."""
        match word:
            case "f" if self.kind != _FONT_TABLE:
                return replace(self, encoding=fonts.encoding(number or 0))
            case "plain":
                return replace(self, encoding=fonts.default_font_encoding, is_hidden=False, is_superscript=False)
            case "uc":
                return replace(self, fallbacks=min(max(number or 0, 0), 16))
            case "v" | "deleted":
                return replace(self, is_hidden=number != 0)
            case "super" | "nosupersub" | "sub":
                return replace(self, is_superscript=word == "super" and number != 0)
            case _:
                return self


class EventReader:
    """Reads the events of one document.

    `_bytes` is text that is not decoded yet; `_fallbacks_left` bytes of the next text are skipped. `_high` is the first
    half of a surrogate pair. `_is_starred`: the next word follows a star.
    """

    def __init__(self, body: bytes) -> None:
        self._body, self._bytes = body, bytearray()
        self._state, self._outer = _State(), list[_State]()
        self._fonts = _Fonts()
        self._fallbacks_left = self._high = 0
        self._is_starred = False

    def events(self) -> Iterator[Event]:
        """Yields the events in the document's order, without hidden text and groups that no reader sees."""
        position = 0
        while token := _TOKEN.match(self._body, position):
            position = token.end()
            word, number, code, character, brace, plain = token.groups()
            if word == b"bin":
                position += max(int(number or 0), 0)
            elif word is not None:
                yield from self._read_word(word.decode(), None if number is None else int(number))
            elif brace:
                yield from self._read_brace(brace)
            elif character is not None:
                yield from self._read_escape(character)
            elif code is not None:
                self._store_bytes(bytes.fromhex(code.decode()))
            elif plain is not None:
                self._store_bytes(plain)
        yield from self._flush()

    def _store_bytes(self, raw: bytes) -> None:
        """Stores bytes of text, without those that repeat a Unicode character for old readers."""
        skipped = min(self._fallbacks_left, len(raw))
        self._fallbacks_left -= skipped
        if self._state.kind != _SKIPPED_KIND:
            self._bytes += raw[skipped:]

    def _read_brace(self, brace: bytes) -> Iterator[Event]:
        yield from self._flush()
        self._fallbacks_left, self._is_starred = 0, False
        if brace == b"{":
            self._outer.append(self._state)
        elif self._outer:
            closed, self._state = self._state, self._outer.pop()
            if closed.kind != self._state.kind:
                yield Event(closed.kind, "}")

    def _read_escape(self, character: bytes) -> Iterator[Event]:
        yield from self._flush()
        if character == b"*":
            self._is_starred = True
        elif character in b"\r\n":
            yield Event(self._state.kind, "par")
        else:
            yield from self._text_events(_ESCAPES.get(character, ""))

    def _read_word(self, word: str, number: int | None) -> Iterator[Event]:
        yield from self._flush()
        is_starred, self._is_starred = self._is_starred, False
        if self._state.kind == _SKIPPED_KIND:
            return
        if word in _SKIPPED_GROUPS or (is_starred and word not in _STARRED_GROUPS):
            self._state = replace(self._state, kind=_SKIPPED_KIND)
        elif word in _READ_GROUPS:
            self._state = replace(self._state, kind=word, is_hidden=False, is_superscript=False)
        elif word == "u" and number is not None:
            yield from self._text_events(self._read_unicode(number & 0xFFFF))
        elif word in _CHARACTERS:
            yield from self._text_events(_CHARACTERS[word])
        else:
            self._fonts.read_word(word, number or 0, self._state.kind)
            self._state = self._state.after_word(word, number, self._fonts)
            yield Event(self._state.kind, word, number)

    def _read_unicode(self, code: int) -> str:
        """The character of a UTF-16 code unit; empty for the first half of a pair."""
        self._fallbacks_left = self._state.fallbacks
        if 0xD800 <= code < 0xDC00:
            self._high = code
            return ""
        if 0xDC00 <= code < 0xE000:
            high, self._high = self._high, 0
            return chr(0x10000 + ((high - 0xD800) << 10) + (code - 0xDC00)) if high else "\ufffd"
        return symbol_character("", code) if 0xF000 <= code < 0xF100 else chr(code)

    def _flush(self) -> Iterator[Event]:
        """Yields the text of the stored bytes. In the font table it is the name of a font, and yields nothing."""
        if not self._bytes:
            return
        raw, self._bytes = bytes(self._bytes), bytearray()
        encoding = self._state.encoding or self._fonts.default_encoding
        if self._state.kind == _FONT_TABLE:
            self._fonts.read_name(raw)
        elif encoding.startswith("symbol"):
            font = encoding.removeprefix("symbol ")
            yield from self._text_events("".join(symbol_character(font, byte) for byte in raw))
        else:
            yield from self._text_events(raw.decode(encoding, "replace"))

    def _text_events(self, text: str) -> Iterator[Event]:
        if text and not self._state.is_hidden and self._state.kind != _SKIPPED_KIND:
            is_power = self._state.is_superscript and is_exponent(text)
            yield Event(self._state.kind, "", text=f"^{text}" if is_power else text)
