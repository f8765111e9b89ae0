"""The numbers that a text names, in all notations: 1,000 is 1000, twelve is 12, 2nd is 2, 1.5 million is 1500000."""

import re
from collections.abc import Iterator, Sequence, Set
from decimal import Decimal

_SMALL_WORDS = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
    seventeen eighteen nineteen"""
_TENS_WORDS = "twenty thirty forty fifty sixty seventy eighty ninety"
_ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"
_MONTH_NAMES = "January February March April May June July August September October November December"


def _number_words(words: str, start: int, step: int = 1) -> dict[str, Decimal]:
    """The words with their values, which count up from `start`."""
    return {word: Decimal(start + index * step) for index, word in enumerate(words.split())}


_TENS = _number_words(_TENS_WORDS, start=20, step=10)
_SMALL = _number_words(_SMALL_WORDS, start=0) | _number_words(_ORDINALS, start=1)
_UNITS = [word for word, value in _SMALL.items() if 0 < value < 10]
_SCALES = {"thousand": 3, "million": 6, "billion": 9, "bn": 9, "trillion": 12}
_MONTHS = _number_words(_MONTH_NAMES, start=1)
_MONTHS |= {name[:3]: number for name, number in _MONTHS.items()}

_NUMBER = re.compile(
    rf"""
      (?<![^\W_])(?P<digits>\d{{1,3}}(?:[,\u00a0\u202f]\d{{3}})+(?:\.\d+)?(?!\d)|\d+(?:\.\d+)?)
      (?:[ ]?(?P<scale>(?i:{"|".join(_SCALES)}))\b)?
    | \b(?i:(?P<tens>{"|".join(_TENS)})(?:[ -](?P<unit>{"|".join(_UNITS)}))?)\b
    | \b(?i:(?P<small>{"|".join(_SMALL)}))\b
    | \b(?P<month>{"|".join(_MONTHS)})\b
    """,
    re.VERBOSE,
)
_RARELY_NUMBERS = frozenset({"one", "first", "second"})
"""Words that seldom name a number: one of them, at first, in a second."""

_PLAIN_NUMBER = re.compile(r"(?<![\w.,])(?!\d+00\b)\d{3,}(?![\w'\u2019]|[.,][\d-])", re.ASCII)
"""A number that most languages write alike: without separators, and too large and too odd to be written as a word."""

_DIGITS = re.compile(r"\d+")
_DIGIT_SEPARATOR = re.compile(r"(?<=\d)[.,'\u2019\u00a0\u202f ](?=\d{3}(?!\d))")


def find_numbers(text: str) -> frozenset[Decimal]:
    """Every value that a number of the text can have."""
    return frozenset(value for _, values in _parse_numbers(text) for value in values)


def find_missing_number(claim: str, numbers: Set[Decimal]) -> str:
    """The first number of the claim that is not among the numbers, as the claim writes it; empty if all are."""
    for text, values in _parse_numbers(claim):
        is_number = text.lower() not in _RARELY_NUMBERS and text not in _MONTHS
        if is_number and values[-1] not in numbers:
            return text
    return ""


def find_missing_plain_number(claim: str, texts: Sequence[str]) -> str:
    """The first number of the claim that texts in other languages do not contain, however they separate its digits.

    Only numbers of three digits and more count, such as years; not those that a language can write as a word, such as
    500 or 12.
    """
    variants = (variant for text in texts for variant in (text, _DIGIT_SEPARATOR.sub("", text)))
    values = {int(digits) for variant in variants for digits in _DIGITS.findall(variant)}
    return next((number for number in _PLAIN_NUMBER.findall(claim) if int(number) not in values), "")


def _parse_numbers(text: str) -> Iterator[tuple[str, tuple[Decimal, ...]]]:
    """Yields each number's text, and the values that it can have, that of the whole text last."""
    for match in _NUMBER.finditer(text):
        values: tuple[Decimal, ...]
        if digits := match["digits"]:
            value = Decimal(re.sub(r"[,\u00a0\u202f]", "", digits))
            values = (value, value.scaleb(_SCALES[match["scale"].lower()])) if match["scale"] else (value,)
        elif tens := match["tens"]:
            value = _TENS[tens.lower()]
            values = (value, value + _SMALL[match["unit"].lower()]) if match["unit"] else (value,)
        else:
            values = (_MONTHS[match["month"]] if match["month"] else _SMALL[match["small"].lower()],)
        yield match.group(), values
