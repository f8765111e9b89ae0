"""Decoding of bytes in any encoding. Bytes that fit no encoding become U+FFFD, so decoding never fails."""

import codecs

VERSION = 2

# UTF-32 first: its little-endian mark begins with the mark of UTF-16
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Few and common: charset_normalizer reads "café" as Arabic if it can choose among all encodings
_CANDIDATES = (
    *("cp1252", "cp1250", "cp1251", "koi8_r", "cp1253", "cp1254", "cp1255", "cp1256"),
    *("cp932", "euc_jp", "gb18030", "big5", "euc_kr"),
)
# Browsers do the same: text that is declared as Latin-1 was written in Windows' superset of it
_SUPERSETS = {"iso8859-1": "cp1252", "ascii": "cp1252", "gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932"}
_HEAD_BYTES = 65536
# Japanese mail escapes to its characters like this. All of its bytes are ASCII, so they also look like UTF-8
_JAPANESE_ESCAPE = b"\x1b$"


def decode_text(body: bytes, declared: str = "") -> str:
    """The text with `\\n` as its only line end, without NULs and lone surrogates.

    The encoding `declared` is used only if the bytes are not UTF-8 or contain Japanese escape sequences.
    """
    mark, encoding = find_byte_order_mark(body)
    if mark:
        text = body[len(mark) :].decode(encoding, "replace")
    elif _JAPANESE_ESCAPE in body and _codec_name(declared).startswith("iso2022_jp"):
        text = body.decode(declared, "replace")
    else:
        try:
            text = body.decode()
        except UnicodeDecodeError:
            text = body.decode(_guess_encoding(body[:_HEAD_BYTES], declared), "replace")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.replace("\0", "")


def find_byte_order_mark(body: bytes) -> tuple[bytes, str]:
    """The byte order mark at the start of the body, and its encoding; both empty if there is none."""
    return next(((mark, name) for mark, name in _MARKS if body.startswith(mark)), (b"", ""))


def _guess_encoding(head: bytes, declared: str) -> str:
    text = head.decode("utf-8", "replace")
    broken = text.count("\ufffd")
    non_ascii_bytes = len(head) - len(text.encode("ascii", "ignore"))
    if broken * 10 < non_ascii_bytes - broken:  # damaged UTF-8: a log with one broken line is not Latin-1
        return "utf-8"
    name = _codec_name(declared)
    name = _SUPERSETS.get(name, name)
    # an allowlist, because a page can also declare codecs such as utf-7, whose text can contain lone surrogates
    if name in _CANDIDATES or name.startswith(("iso8859", "cp125", "koi8")):
        return name
    from charset_normalizer import from_bytes

    best = from_bytes(head, cp_isolation=list(_CANDIDATES)).best()
    return best.encoding if best else "cp1252"


def _codec_name(declared: str) -> str:
    """Python's name of the encoding; empty if Python does not know it."""
    try:
        return codecs.lookup(declared).name
    except (LookupError, ValueError):
        return ""
