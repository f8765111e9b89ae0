"""Takes from what is to be logged who is meant by it and what opens a door: addresses, numbers, keys, passwords.

By form, so it finds what looks like itself: a name in a sentence stays. What is taken is named by its kind.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

LONGEST = 16_000
"""Characters of one text; the rest is cut."""

Loggable: TypeAlias = Any
"""What a log line may hold: of JSON's types after scrubbing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """`applies` tells a match from what only looks like one."""

    pattern: re.Pattern[str]
    put: str
    applies: Callable[[str], bool] = bool


def scrub(value: Loggable) -> Loggable:
    """The same with every text in it clean, whatever it is nested in. What JSON has no type for becomes text first."""
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return scrub_text(value)
        case Mapping():
            return {_clean_key(str(key)): _scrub_field(str(key), each) for key, each in value.items()}
        case list() | tuple() | set() | frozenset():
            return [scrub(each) for each in value]
        case _:
            return scrub_text(str(value))


def scrub_text(text: str) -> str:
    if len(text) > LONGEST:
        text = text[:LONGEST] + f"... ({len(text) - LONGEST} more characters)"
    if not _SUSPECT.search(text):
        return text
    for form in _FORMS:
        text = form.pattern.sub(_replacement(form), text)
    return text


@lru_cache(maxsize=1024)
def _clean_key(key: str) -> str:
    return scrub_text(key)


def _scrub_field(key: str, value: Loggable) -> Loggable:
    return "[secret]" if value and _is_secret(key) else scrub(value)


@lru_cache(maxsize=1024)
def _is_secret(key: str) -> bool:
    return _SECRET_KEY.search(key) is not None


def _replacement(form: _Form) -> Callable[[re.Match[str]], str]:
    return lambda match: match.expand(form.put) if form.applies(match[0]) else match[0]


def _passes_luhn(text: str) -> bool:
    digits = [int(sign) for sign in reversed(text) if sign.isdigit()]
    doubled = (2 * digit - 9 * (digit > 4) for digit in digits[1::2])
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


def _is_iban(text: str) -> bool:
    """ISO 13616: modulo 97, letters as numbers from 10."""
    signs = re.sub(r"\W", "", text).upper()
    return 15 <= len(signs) <= 34 and int("".join(str(int(sign, 36)) for sign in signs[4:] + signs[:4])) % 97 == 1


_NAMES = (
    r"(?:password|passwd|passphrase|pwd|secret|token|(?:api|access|private|secret)[_-]?key|authorization|credentials?"
    r"|cookies?)"
)
_SECRETIVE = rf"[\w.-]{{0,40}}{_NAMES}"
_VALUE = r"[^\s,;&\"'})\]]+"
_KEYS = (
    r"\b(?:(?:sk|pk|rk)[-_][\w-]{12,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abprs]-[\w-]{10,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}\b|AIza[\w-]{30,}|hf_\w{20,}|rag_\w{20,})"
)
_SUSPECT = re.compile(
    rf"[@+(]|\d(?:[ -]?\d){{2}}|://|eyJ|-----BEGIN|(?i:{_NAMES}|bearer|basic)|[A-Za-z]{{2}}\d\d|{_KEYS}"
)
"""Without any of these no form fits: most lines are done here."""
_SECRET_KEY = re.compile(rf"(?i)^{_SECRETIVE}$")
_FORMS = (
    _Form(
        pattern=re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.S),
        put="[key]",
    ),
    _Form(pattern=re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30}://[^\s:/@]*:)[^\s/]+@"), put=r"\1[secret]@"),
    _Form(pattern=re.compile(r"(?i)\b(bearer|basic)(\s+)[\w.~+/=-]{6,}"), put=r"\1\2[secret]"),
    _Form(
        pattern=re.compile(
            rf"""(?i)(?<![\w.-])({_SECRETIVE}["']?\s*(?:=|:)\s*)(?!\[secret\])"""
            rf"""("[^"]*"|'[^']*'|{_VALUE}(?:; [\w.-]+={_VALUE})*)"""
        ),
        put=r"\1[secret]",
    ),
    _Form(pattern=re.compile(r"\beyJ[\w-]{5,}\.[\w-]{5,}\.[\w-]*"), put="[token]"),
    _Form(pattern=re.compile(_KEYS), put="[key]"),
    _Form(pattern=re.compile(r"[\w.!#$%&*+/=?^{|}~-]{1,64}@(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}"), put="[e-mail]"),
    _Form(
        pattern=re.compile(r"\b[A-Za-z]{2}\d{2}(?:[ -]?[A-Za-z0-9]{4}){2,7}(?:[ -]?[A-Za-z0-9]{1,3})?\b"),
        put="[iban]",
        applies=_is_iban,
    ),
    _Form(pattern=re.compile(r"(?<![\w-])\d(?:[ -]?\d){12,18}(?![\w-])"), put="[card]", applies=_passes_luhn),
    _Form(pattern=re.compile(r"(?<![\w-])\d{3}-\d{2}-\d{4}(?![\w-])"), put="[ssn]"),
    _Form(pattern=re.compile(r"(?<![\w+])\+\d(?:[ ./-]?\(?\d\)?){2,37}(?!\w)"), put="[phone]"),
    _Form(pattern=re.compile(r"(?<![\w.-])\(?\d{3}\)?[ .-]\d{3}[ .-]\d{4}(?![\w-])"), put="[phone]"),
    _Form(
        pattern=re.compile(r"(?<![\w.,:-])\(?0\d{2,5}\)?[ /-]\d{3,5}(?:[ -]?\d{2,5}){0,2}(?![\w.:-])"), put="[phone]"
    ),
)
