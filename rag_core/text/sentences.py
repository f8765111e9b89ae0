"""Sentence boundaries, by punctuation and the line structure of Markdown."""

import re

from rag_core.text.stop_words import STOP_WORDS

# A full stop does not end a sentence before a lower-case letter, nor after an initial.
_BREAKS = re.compile(
    r"""
      (?P<fence>^[ \t]*(?P<mark>```|~~~)[^\n]*(?:\n(?![ \t]*(?P=mark))[^\n]*)*(?:\n[ \t]*(?P=mark)[^\n]*)?)
    | (?P<line>^[ \t]*(?:\#{1,6}[ \t]|(?:>[ \t]*+)*+\|)[^\n]*)
    | \n(?=[ \t]*(?:\n|(?:[-*+•]|\d{1,3}[.)])[ \t]))
    | (?<![.!?…])[.!?…]++["'”’»)\]*_]*+(?=\s)(?!\s+[a-zß-öø-ÿα-ωа-я])
      (?<!\b[A-Z]\.)(?<!\b[a-z]\.[a-z]\.)
    | [。！？｡]++["'”’」』）】]*+
    """,  # noqa: RUF001
    re.VERBOSE | re.MULTILINE,
)
_LINE_END = re.compile("\n")

_ALWAYS = """
Dr Mr Mrs Ms Prof St Ph.D M.Sc B.Sc Dipl Ing Lt Capt Sgt Maj Rev Jr vs al cf ca approx resp Eq Eqs Fig Figs Ref Refs Sec
Vol pp Nr Nrn Abs Abb Ziff Rn Rdnr Hrsg bzw evtl ggf inkl zzgl vgl Vgl sog geb gest Str Tel Mio Mrd Std"""
_BEFORE_NUMBERS = "No Nos Art Bd Kap Tab Az Ch ch par para Pt"
_GERMAN_MONTHS = "Januar Jänner Februar März April Mai Juni Juli August September Oktober November Dezember"
_ABBREVIATIONS, _ABBREVIATIONS_BEFORE_NUMBERS = frozenset(_ALWAYS.split()), frozenset(_BEFORE_NUMBERS.split())
_MONTHS = frozenset(_GERMAN_MONTHS.split())
_OPENINGS = "([{\"'„“‚‘«»*_"  # noqa: RUF001
_WORD = re.compile(r"\w+")
_LONGEST_CONTEXT = 32
"""The characters on either side of a full stop that decide if it ends a sentence."""

CODE_BLOCK = re.compile(r"^[ \t]*(?P<fence>```|~~~).*?(?:^[ \t]*(?P=fence)[^\n]*$|\Z)", re.MULTILINE | re.DOTALL)
"""A block of code in Markdown, closed or not."""


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """(start, end) of every sentence, heading, list item, table row and line of code, without white space around it."""
    breaks: list[int] = []
    for match in _BREAKS.finditer(text):
        if match[0].startswith(".") and _continues(text, match.start()):
            continue
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


def _continues(text: str, stop: int) -> bool:
    """True if the full stop at that offset belongs to an abbreviation, an ordinal number or a date."""
    before = text[max(0, stop - _LONGEST_CONTEXT) : stop].split()
    word = before[-1].lstrip(_OPENINGS) if before else ""
    if word in _ABBREVIATIONS:
        return True
    if len(word) > 2 and word not in _ABBREVIATIONS_BEFORE_NUMBERS:
        return False
    after = _WORD.search(text, stop + 1, stop + 1 + _LONGEST_CONTEXT)
    following, previous = after[0] if after else "", before[-2].lstrip(_OPENINGS) if len(before) > 1 else ""
    if word in _ABBREVIATIONS_BEFORE_NUMBERS:
        return following.isdecimal()
    if word.isdecimal():
        return following in _MONTHS or _is_ordinal(previous, following)
    if len(word) != 1 or not word.isalpha():
        return False
    is_first_of_two = after is not None and len(following) == 1 and text.startswith(".", after.end())
    return is_first_of_two or (len(previous) == 2 and previous[0].isalpha() and previous[1] == ".")


def _is_ordinal(previous: str, following: str) -> bool:
    """True for a German ordinal number, as in `der 3. Platz`: after a function word and before another word."""
    lower = following.lower()
    is_opening = lower in STOP_WORDS["de"] or lower in STOP_WORDS["en"]
    return previous.lower() in STOP_WORDS["de"] and following.isalpha() and not is_opening
