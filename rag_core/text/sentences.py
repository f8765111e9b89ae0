"""Where sentences begin and end, by punctuation and Markdown's lines."""

import re
from collections.abc import Iterator

# A stop ends no sentence before a lower-case letter, nor after an initial or an abbreviation.
_BREAKS = re.compile(
    r"""
      (?P<fence>^[ \t]*(?P<mark>```|~~~)[^\n]*(?:\n(?![ \t]*(?P=mark))[^\n]*)*(?:\n[ \t]*(?P=mark)[^\n]*)?)
    | (?P<line>^[ \t]*(?:\#{1,6}[ \t]|(?:>[ \t]*+)*+\|)[^\n]*)
    | \n(?=[ \t]*(?:\n|(?:[-*+•]|\d{1,3}[.)])[ \t]))
    | (?<![.!?…])[.!?…]++["'”’»)\]*_]*+(?=\s)(?!\s+[a-zß-öø-ÿα-ωа-я])
      (?<!\b[A-Z]\.)(?<!\b[a-z]\.[a-z]\.)
      (?<!\b(?:Dr|Mr|Ms|St|vs|al|cf|ca|pp|Eq|No)\.)(?<!\b(?:Mrs|Fig|Eqs|Ref|Sec|Vol)\.)(?<!\b(?:Prof|Figs|Refs)\.)(?<!\bapprox\.)
    | [。！？]++["'”’」』）】]*+
    """,  # noqa: RUF001
    re.VERBOSE | re.MULTILINE,
)
_LINE_END = re.compile("\n")

FENCED = re.compile(r"^[ \t]*(?P<fence>```|~~~).*?(?:^[ \t]*(?P=fence)[^\n]*$|\Z)", re.MULTILINE | re.DOTALL)
"""A block of code in Markdown, whether it is closed or not."""


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Every sentence, heading, list item, table row and line of code, without surrounding whitespace, in order."""
    spans, start = [], 0
    for end in [*_ends(text), len(text)]:
        piece = text[start:end]
        if stripped := piece.strip():
            first = start + len(piece) - len(piece.lstrip())
            spans.append((first, first + len(stripped)))
        start = end
    return spans


def _ends(text: str) -> Iterator[int]:
    for found in _BREAKS.finditer(text):
        if found.lastgroup is not None:
            yield found.start()
        if found["fence"]:
            yield from (found.start() + line.end() for line in _LINE_END.finditer(found["fence"]))
        yield found.end()
