"""Sentence boundaries, by punctuation and the line structure of Markdown."""

import re

# A full stop does not end a sentence before a lower-case letter, nor after an initial or an abbreviation.
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

CODE_BLOCK = re.compile(r"^[ \t]*(?P<fence>```|~~~).*?(?:^[ \t]*(?P=fence)[^\n]*$|\Z)", re.MULTILINE | re.DOTALL)
"""A block of code in Markdown, closed or not."""


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """(start, end) of every sentence, heading, list item, table row and line of code, without white space around it."""
    breaks: list[int] = []
    for match in _BREAKS.finditer(text):
        if match.lastgroup is not None:
            breaks.append(match.start())
        if match["fence"]:
            breaks += [match.start() + line.end() for line in _LINE_END.finditer(match["fence"])]
        breaks.append(match.end())
    spans, start = [], 0
    for end in [*breaks, len(text)]:
        piece = text[start:end]
        if stripped := piece.strip():
            first = start + len(piece) - len(piece.lstrip())
            spans.append((first, first + len(stripped)))
        start = end
    return spans
