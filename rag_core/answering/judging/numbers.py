"""Which numbers a text names, however it writes them: 1,000 is 1000, twelve is 12, 2nd is 2, 1.5 million is 1500000."""

import re
from collections.abc import Iterator, Set
from decimal import Decimal

_SMALL_WORDS = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
    seventeen eighteen nineteen"""
_TENS_WORDS = "twenty thirty forty fifty sixty seventy eighty ninety"
_ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"
_MONTHS = "January February March April May June July August September October November December"


def _counted(words: str, start: int, step: int = 1) -> dict[str, Decimal]:
    return {word: Decimal(start + place * step) for place, word in enumerate(words.split())}


_TENS = _counted(_TENS_WORDS, start=20, step=10)
_SMALL = _counted(_SMALL_WORDS, start=0) | _counted(_ORDINALS, start=1)
_UNITS = [word for word, value in _SMALL.items() if 0 < value < 10]
_SCALES = {"thousand": 3, "million": 6, "billion": 9, "bn": 9, "trillion": 12}
_MONTH = _counted(_MONTHS, start=1)
_MONTH |= {name[:3]: number for name, number in _MONTH.items()}

_NUMBER = re.compile(
    rf"""
      (?<![^\W_])(?P<digits>\d{{1,3}}(?:[,\u00a0\u202f]\d{{3}})+(?:\.\d+)?(?!\d)|\d+(?:\.\d+)?)
      (?:[ ]?(?P<scale>(?i:{"|".join(_SCALES)}))\b)?
    | \b(?i:(?P<tens>{"|".join(_TENS)})(?:[ -](?P<unit>{"|".join(_UNITS)}))?)\b
    | \b(?i:(?P<small>{"|".join(_SMALL)}))\b
    | \b(?P<month>{"|".join(_MONTH)})\b
    """,
    re.VERBOSE,
)
_VAGUE = frozenset({"one", "first", "second"})
"""Seldom a number: one of them, at first, in a second."""


def held_numbers(text: str) -> frozenset[Decimal]:
    return frozenset(value for _, values in _numbers(text) for value in values)


def missing_number(claim: str, held: Set[Decimal]) -> str:
    """The first number of the claim that is not among these, as the claim writes it; empty if all are."""
    named = ((written, values[-1]) for written, values in _numbers(claim) if not _vague(written))
    return next((written for written, value in named if value not in held), "")


def _vague(written: str) -> bool:
    return written.lower() in _VAGUE or written in _MONTH


def _numbers(text: str) -> Iterator[tuple[str, tuple[Decimal, ...]]]:
    """Each as it is written, and what it may stand for, the whole of it last."""
    for found in _NUMBER.finditer(text):
        yield found.group(), _values(found)


def _values(found: re.Match[str]) -> tuple[Decimal, ...]:
    if digits := found["digits"]:
        value = Decimal(re.sub(r"[,\u00a0\u202f]", "", digits))
        return (value, value.scaleb(_SCALES[found["scale"].lower()])) if found["scale"] else (value,)
    if tens := found["tens"]:
        value = _TENS[tens.lower()]
        return (value, value + _SMALL[found["unit"].lower()]) if found["unit"] else (value,)
    return (_MONTH[found["month"]] if found["month"] else _SMALL[found["small"].lower()],)
