"""Decoding of bytes in any encoding. Bytes that fit no encoding become U+FFFD, so decoding never fails.

The VERSION covers `letters`.
"""

import codecs
import re
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache

from rag_core.parsing.letters import LATIN, likelihood_by_language
from rag_core.text.language import rank_languages

VERSION = 3

ENCODING_UNCERTAIN = "encoding-uncertain"
"""The flag of a document whose encoding was guessed with a lead below `CLEAR_LEAD`."""

CLEAR_LEAD = 6.0
"""The lead of the likeliest text over the next different one, in nats, that leaves no doubt."""

# UTF-32 first: its little-endian mark begins with the mark of UTF-16
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_WIDE = ("utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be")
# The first of equally likely encodings is used
_CANDIDATES = (
    *("cp1252", "cp1250", "iso8859_2", "cp1254", "iso8859_15", "cp1257", "iso8859_13", "iso8859_4"),
    *("cp1258", "cp1251", "koi8_r", "koi8_u", "iso8859_5", "cp866", "cp1253", "iso8859_7", "cp1255", "iso8859_8"),
    *("cp1256", "iso8859_6", "cp874", "cp932", "euc_jp", "gb18030", "cp950", "cp949", "euc_kr"),
)
_DECLARABLE = frozenset(("cp932", "euc_jp", "gb18030", "big5", "euc_kr", "cp949", "cp950", "cp866", "cp874", "tis-620"))
# Browsers do the same: text that is declared as Latin-1 was written in Windows' superset of it
_SUPERSETS = {"iso8859-1": "cp1252", "ascii": "cp1252", "gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932"}
# Undefined bytes, controls, and single letters of Korean syllables: signs of a wrong encoding
_UNLIKELY = re.compile("[\ufffd\x80-\x9f\u3131-\u318e]")
# Single-byte text has none of these; the wide encodings of most scripts have one in every letter or space
_CONTROL = re.compile(rb"[\0-\x06\x0e]")
_HEAD_BYTES = 65536
_SAMPLE_BYTES, _ASCII_BEFORE = 3000, 200
_NOT_ASCII = re.compile(rb"[\x80-\xff]")
_UNLIKELY_CHARACTER = -9.0
"""The mean likelihood of a character below which bytes are not text in UTF-16 or UTF-32."""

_PRIOR_WEIGHT, _LOWEST_PRIOR = 0.2, -12.0
"""The weight of the language identifier's nats: it sees only the ASCII part of the text, and is too sure of itself."""

_PREFERRED, _PREFERENCE = "cp1252", 3.0
"""The most common encoding of text that is not UTF-8, and by how many nats it is likelier than each of the others."""

# Mail escapes to Japanese and Korean characters like this. All of its bytes are ASCII, so they also look like UTF-8
_ESCAPE = b"\x1b$"
KOREAN_ESCAPE = b"\x1b$)C"
"""What starts Korean text in mail. Such text has a control character before and after each word."""


@dataclass(frozen=True, slots=True)
class Guess:
    """An encoding, and its lead in nats over the next one that gives another text."""

    encoding: str
    lead: float

    @property
    def is_clear(self) -> bool:
        return self.lead >= CLEAR_LEAD


_doubtful_guesses: ContextVar[list[Guess] | None] = ContextVar("doubtful_guesses", default=None)


@contextmanager
def record_doubtful_guesses() -> Iterator[list[Guess]]:
    """Yields a list that receives every guess within the block that is not clear."""
    guesses: list[Guess] = []
    token = _doubtful_guesses.set(guesses)
    try:
        yield guesses
    finally:
        _doubtful_guesses.reset(token)


def decode_text(body: bytes, declared: str = "") -> str:
    """The text with `\\n` as its only line end, without NULs and lone surrogates.

    The encoding `declared` is used only if the bytes are not UTF-8 or contain Japanese or Korean escape sequences.
    """
    mark, encoding = find_unicode_encoding(body)
    if encoding:
        text = body[len(mark) :].decode(encoding, "replace")
    elif encoding := _find_escaped_encoding(body, declared):
        text = body.decode(encoding, "replace")
    else:
        try:
            text = body.decode()
        except UnicodeDecodeError:
            guess = _choose_encoding(body, declared)
            guesses = _doubtful_guesses.get()
            if guesses is not None and not guess.is_clear:
                guesses.append(guess)
            text = _decode(body, guess.encoding)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.replace("\0", "")


def find_byte_order_mark(body: bytes) -> tuple[bytes, str]:
    """The byte order mark at the start of the body, and its encoding; both empty if there is none."""
    return next(((mark, name) for mark, name in _MARKS if body.startswith(mark)), (b"", ""))


def find_unicode_encoding(body: bytes) -> tuple[bytes, str]:
    """The byte order mark, and its encoding. Without a mark, the encoding is recognised if it is UTF-16 or UTF-32."""
    mark, encoding = find_byte_order_mark(body)
    return (mark, encoding) if mark else (b"", _find_wide_encoding(body))


def guess_encoding(body: bytes) -> Guess:
    """The likeliest encoding of bytes that are not UTF-8, by a sample of the lines that are not ASCII."""
    (score, encodings), *others = _rank_encodings(_sample_lines(body))
    head = body[:_HEAD_BYTES]
    encoding = min(encodings, key=lambda name: len(_UNLIKELY.findall(_decode(head, name))))
    return Guess(encoding, score - others[0][0] if others else score)


def _rank_encodings(sample: bytes) -> list[tuple[float, tuple[str, ...]]]:
    """The likelihood of each different text, with the candidates that give it, the likeliest first."""
    ascii_part = sample.decode("ascii", "replace").replace("\ufffd", "?")
    ranking = {language: nats for language, nats in rank_languages(ascii_part).items() if language in LATIN}
    best = max(ranking.values(), default=0.0)
    priors = {language: max((nats - best) * _PRIOR_WEIGHT, _LOWEST_PRIOR) for language, nats in ranking.items()}
    encodings: dict[str, tuple[str, ...]] = {}
    for encoding in _CANDIDATES:
        text = _decode(sample, encoding)
        encodings[text] = (*encodings.get(text, ()), encoding)
    scores = [
        (likelihood_by_language(text, priors) + _PREFERENCE * (_PREFERRED in names), names)
        for text, names in encodings.items()
    ]
    return sorted(scores, key=lambda scored: -scored[0])


def _find_wide_encoding(body: bytes) -> str:
    """The encoding of UTF-16 or UTF-32 without a mark; empty for other bytes."""
    head = body[:_SAMPLE_BYTES]
    if len(body) % 2 or len(body) < 4 or (not _CONTROL.search(head) and _is_utf8(head)):
        return ""
    return _compare_wide_encodings(head, len(body) % 4 == 0)


@lru_cache(maxsize=8)
def _compare_wide_encodings(head: bytes, can_be_utf32: bool) -> str:
    if can_be_utf32:
        for encoding in _WIDE[:2]:
            if _is_plausible(head, encoding):
                return encoding
    scores = [
        (likelihood_by_language(head.decode(encoding, "replace"), {}), encoding)
        for encoding in _WIDE[2:]
        if _is_plausible(head, encoding)
    ]
    if not scores or max(scores)[0] < _rank_encodings(head)[0][0]:
        return ""
    return max(scores)[1]


def _is_plausible(head: bytes, encoding: str) -> bool:
    """True if the bytes are text in this encoding, without controls and undefined characters."""
    text = head[: len(head) // 4 * 4].decode(encoding, "replace")
    if any(unicodedata.category(char) in {"Cc", "Cn", "Co"} and char not in "\t\n\r\f" for char in set(text)):
        return False
    return likelihood_by_language(text, {}) >= _UNLIKELY_CHARACTER * len(text)


def _is_utf8(head: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True


def _find_escaped_encoding(body: bytes, declared: str) -> str:
    """The encoding of text with Japanese or Korean escape sequences; empty for other bytes."""
    if _ESCAPE not in body:
        return ""
    name = _codec_name(declared)
    if name.startswith("iso2022_"):
        return name
    encoding = "iso2022_kr" if KOREAN_ESCAPE in body else "iso2022_jp_2"
    try:
        text = body.decode(encoding)
    except UnicodeDecodeError:
        return ""
    return "" if text.isascii() else encoding


def _choose_encoding(body: bytes, declared: str) -> Guess:
    head = body[:_HEAD_BYTES]
    text = head.decode("utf-8", "replace")
    broken = text.count("\ufffd")
    non_ascii_bytes = len(head) - len(text.encode("ascii", "ignore"))
    if broken * 10 < non_ascii_bytes - broken:  # damaged UTF-8: a log with one broken line is not Latin-1
        return Guess("utf-8", CLEAR_LEAD)
    name = _codec_name(declared)
    name = _SUPERSETS.get(name, name)
    # an allowlist, because a page can also declare codecs such as utf-7, whose text can contain lone surrogates
    if name in _DECLARABLE or name.startswith(("iso8859", "cp125", "koi8")):
        return Guess(name, CLEAR_LEAD)
    return guess_encoding(body)


def _decode(body: bytes, encoding: str) -> str:
    text = body.decode(encoding, "replace")
    # this encoding writes a letter and its tone as two characters
    return unicodedata.normalize("NFC", text) if encoding == "cp1258" else text


def _sample_lines(body: bytes) -> bytes:
    """The first lines that are not ASCII, up to a number of bytes."""
    lines: list[bytes] = []
    size = start = 0
    while size < _SAMPLE_BYTES and (match := _NOT_ASCII.search(body, start)):
        # what comes before is ASCII: a long line can be cut there without cutting a character of several bytes
        first = max(body.rfind(b"\n", start, match.start()) + 1, start, match.start() - _ASCII_BEFORE)
        end = body.find(b"\n", match.start()) + 1 or len(body)
        start = min(end, first + _SAMPLE_BYTES)
        lines.append(body[first:start])
        size += start - first
    return b"".join(lines)[:_SAMPLE_BYTES]


def _codec_name(declared: str) -> str:
    """Python's name of the encoding; empty if Python does not know it."""
    try:
        return codecs.lookup(declared).name
    except (LookupError, ValueError):
        return ""
