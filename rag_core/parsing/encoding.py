"""Bytes to text, whatever they were written in. Bytes that fit nowhere become U+FFFD, so decoding never fails."""

import codecs

VERSION = 2

# UTF-32 first: its little-endian mark begins with that of UTF-16
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Few and common: charset_normalizer reads "café" as Arabic when it may choose among all
_GUESSES = (
    *("cp1252", "cp1250", "cp1251", "koi8_r", "cp1253", "cp1254", "cp1255", "cp1256"),
    *("cp932", "euc_jp", "gb18030", "big5", "euc_kr"),
)
# As browsers have it: what calls itself Latin-1 was written in Windows' superset of it
_SUPERSETS = {"iso8859-1": "cp1252", "ascii": "cp1252", "gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932"}
_HEAD = 65536
# Japanese mail's: all of it is ASCII, so that it could be UTF-8
_ESCAPES = b"\x1b$"


def decoded(body: bytes, declared: str = "") -> str:
    """Lines end in a newline alone; no NUL, no lone surrogate. `declared` is heard where the bytes are not UTF-8, or
    escape to Japanese."""
    text = _text(body, declared)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.replace("\0", "")


def marked(body: bytes) -> tuple[bytes, str]:
    """The byte order mark that the bytes begin with, and its encoding; empty where there is none."""
    return next(((mark, name) for mark, name in _MARKS if body.startswith(mark)), (b"", ""))


def _text(body: bytes, declared: str) -> str:
    mark, encoding = marked(body)
    if mark:
        return body[len(mark) :].decode(encoding, "replace")
    if _ESCAPES in body and _named(declared).startswith("iso2022_jp"):
        return body.decode(declared, "replace")
    try:
        return body.decode()
    except UnicodeDecodeError:
        return body.decode(_encoding(body, declared), "replace")


def _encoding(body: bytes, declared: str) -> str:
    if _damaged_utf8(body[:_HEAD]):
        return "utf-8"
    name = _named(declared)
    name = _SUPERSETS.get(name, name)
    # whitelisted, because a page may also name codecs such as utf-7, whose text can hold lone surrogates
    return name if name in _GUESSES or name.startswith(("iso8859", "cp125", "koi8")) else _guessed(body[:_HEAD])


def _named(declared: str) -> str:
    """As Python names it; empty if it does not know it."""
    try:
        return codecs.lookup(declared).name
    except (LookupError, ValueError):
        return ""


def _damaged_utf8(head: bytes) -> bool:
    """Nearly all of what is not ASCII is UTF-8: a log with a broken line is no Latin-1."""
    text = head.decode("utf-8", "replace")
    broken = text.count("\ufffd")
    return broken * 10 < len(head) - len(text.encode("ascii", "ignore")) - broken


def _guessed(head: bytes) -> str:
    from charset_normalizer import from_bytes

    best = from_bytes(head, cp_isolation=list(_GUESSES)).best()
    return best.encoding if best else "cp1252"
