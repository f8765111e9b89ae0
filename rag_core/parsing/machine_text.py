"""Texts that no reader reads: dumps in base64, style sheets, minified scripts, Word's old XML, EBCDIC.

Each rule asks for the whole text to be of its kind, because a wrong name loses a document: prose about style sheets,
lists of hashes and words without spaces are texts. The VERSION of `detection` covers this module.
"""

import re
from collections import Counter
from collections.abc import Sequence
from math import log2

_MIN_CHARS = 200

_WORD_XML = re.compile(
    r"(?:<\?xml\s[^<>]*\?>\s*)?(?:<!--.*?-->\s*)*"
    r"""(?:<\?mso-application\s+progid=["']Word\.Document["']\s*\?>|<w:wordDocument[\s>])""",
    re.DOTALL,
)

_BASE64 = re.compile(r"[A-Za-z0-9+/_-]++={0,2}")
_DATA_URL = re.compile(r"data:[\w.+/;=-]{0,100};base64,")
_PEM_LINE = re.compile(r"-----(?:BEGIN|END) [A-Z0-9 ]+-----")
_UUENCODED = re.compile(r"begin(?:-base64)? [0-7]{3,4} [^\n]+\n(?:M[!-`]{60}\n){3}")
_MIN_LINE_CHARS = 40
_MIN_BITS = 4.9
"""The entropy of a character in bits: hexadecimals have 4, words in lower case 4.2, base64 mostly above 5."""

_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)", re.DOTALL)
_RULE = re.compile(r"(?<![^{}])([^{}]*+)\{([^{}]*+)\}")  # begins after a brace: trying every letter would be slow
_DECLARATION = re.compile(r"\s*[*_]?-{0,2}(?:(?:webkit|moz|ms|o)-)?([a-z]+)[a-z0-9-]*\s*:\s*[^:;{}\n]")
_PROPERTIES = frozenset(
    (
        *("align", "animation", "background", "border", "bottom", "box", "clear", "color", "content", "cursor"),
        *("display", "fill", "filter", "flex", "float", "font", "gap", "grid", "height", "justify", "left", "letter"),
        *("line", "list", "margin", "max", "min", "opacity", "order", "outline", "overflow", "padding", "pointer"),
        *("position", "right", "src", "stroke", "table", "text", "top", "transform", "transition", "unicode", "user"),
        *("vertical", "visibility", "white", "width", "word", "z", "zoom"),
    )
)
_MIN_RULES, _MIN_KNOWN, _MAX_OTHER = 3, 0.6, 0.05

_SCRIPT_WORD = re.compile(
    r"\bfunction\b[\w$ ]*\(|=>|\breturn\b|\bvar |\bconst |\blet |===|!==|&&|\|\||\bvoid 0\b|!0|!1"
)
_MIN_SCRIPT_WORDS = 10
_MIN_SCRIPT_LINE, _MAX_SPACES, _MIN_SYMBOLS = 300, 0.1, 0.15

_EBCDIC_SPACE, _EBCDIC_VOWELS = b"\x40", b"\x81\x85\x89\x96\xa4\xc1\xc5\xc9\xd6\xe4"
# Letters, digits, the common signs and line ends
_EBCDIC_TEXT = re.compile(
    rb"[\x05\x0c\x0d\x15\x25\x40\x4b-\x50\x5a-\x61\x6b-\x6f\x7a-\x7f\x81-\x89\x91-\x99\xa1-\xa9\xc1-\xc9\xd1-\xd9"
    rb"\xe2-\xe9\xf0-\xf9]"
)
_MIN_EBCDIC_BYTES, _MIN_EBCDIC_TEXT, _MIN_EBCDIC_SPACES, _MIN_EBCDIC_VOWELS = 40, 0.95, 0.06, 0.15


def name_machine_text(samples: Sequence[str]) -> str:
    """What the text is if it is not for readers, with its article; empty for every other text.

    `samples` are the text's start and, if it is long, its end.
    """
    if all(map(_is_encoded, samples)):
        return "a base64 dump"
    if all(map(_is_style_sheet, samples)):
        return "a style sheet (CSS)"
    return "minified JavaScript" if all(map(_is_minified_script, samples)) else ""


def is_word_xml(start: str) -> bool:
    """True for Word 2003 XML: its text is between settings and pictures in base64."""
    return _WORD_XML.match(start) is not None


def is_ebcdic(head: bytes) -> bool:
    """True if the bytes are text of IBM mainframes: they have its spaces and vowels where other encodings have none."""
    size = len(head)
    if size < _MIN_EBCDIC_BYTES or head.isascii() or b" " in head:
        return False
    vowels = size - len(head.translate(None, _EBCDIC_VOWELS))
    has_words = head.count(_EBCDIC_SPACE) >= _MIN_EBCDIC_SPACES * size and vowels >= _MIN_EBCDIC_VOWELS * size
    return has_words and len(_EBCDIC_TEXT.findall(head)) >= _MIN_EBCDIC_TEXT * size


def _is_encoded(text: str) -> bool:
    """True for base64 in lines of one length or in a single line, and for uuencoded data."""
    if _UUENCODED.match(text):
        return True
    lines = [line.strip() for line in _DATA_URL.sub("", text, count=1).split("\n")]
    lines = [line for line in lines if line and not _PEM_LINE.fullmatch(line)]
    if not all(map(_BASE64.fullmatch, lines)):
        return False
    inner = lines[1:-1] if len(lines) > 2 else lines[:1]  # a sample can begin and end within a line
    characters = "".join(lines)
    has_even_lines = len({*map(len, inner)}) == 1 and len(inner[0]) >= _MIN_LINE_CHARS
    return len(characters) >= _MIN_CHARS and has_even_lines and _measure_entropy(characters) >= _MIN_BITS


def _measure_entropy(text: str) -> float:
    """The entropy of the text's characters, in bits."""
    shares = (count / len(text) for count in Counter(text).values())
    return -sum(share * log2(share) for share in shares)


def _is_style_sheet(text: str) -> bool:
    """True if there is nothing but rules of known properties, at-rules and comments."""
    if text.count("{") < _MIN_RULES:
        return False
    code = _COMMENT.sub("", text)
    code = code[: code.rfind("}") + 1]
    rules = _RULE.findall(code)
    declarations = [part for _, block in rules for part in block.split(";") if part.strip()]
    properties = [match[1] for part in declarations if (match := _DECLARATION.match(part))]
    known = sum(name in _PROPERTIES for name in properties)
    if len(rules) < _MIN_RULES or known < _MIN_KNOWN * len(declarations):
        return False
    return sum(_count_other(lead) for lead, _ in rules) <= _MAX_OTHER * len(code)


def _count_other(lead: str) -> int:
    """The characters before the selector of a rule that belong to no at-rule."""
    lines = lead.strip().split("\n")[:-1]
    while lines and lines[-1].rstrip().endswith(","):
        lines.pop()
    return sum(len(line) for line in lines if not line.lstrip().startswith("@"))


def _is_minified_script(text: str) -> bool:
    """True for long lines of code with hardly a space."""
    code = _COMMENT.sub("", text).strip()
    size, lines = len(code), code.count("\n") + 1
    if size < _MIN_SCRIPT_LINE * lines:
        return False
    spaces, symbols = code.count(" "), sum(map(code.count, "(){};,=.:"))
    is_dense = spaces <= _MAX_SPACES * size and symbols >= _MIN_SYMBOLS * size
    return is_dense and len(_SCRIPT_WORD.findall(code)) >= _MIN_SCRIPT_WORDS
