"""Removes personal data and secrets from log lines: addresses, numbers, keys, passwords.

They are recognized by their form, so a person's name in a sentence is not removed. Each is replaced by its kind.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

MAX_TEXT_CHARS = 16_000
"""The length at which a text is cut off."""

Loggable: TypeAlias = Any
"""A value for a log line; after scrubbing it has only JSON's types."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Detector:
    """A form of personal data or secrets. `applies` checks a match, for example by its check digits."""

    pattern: re.Pattern[str]
    replacement: str
    applies: Callable[[str], bool] = bool

    def scrub(self, text: str) -> str:
        return self.pattern.sub(
            lambda match: match.expand(self.replacement) if self.applies(match[0]) else match[0], text
        )


def scrub(value: Loggable) -> Loggable:
    """The value with every text in it scrubbed, at any depth. Values without a JSON type become text first."""
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return scrub_text(value)
        case Mapping():
            return {
                _scrub_key(str(key)): "[secret]" if field and _match_secret_key(str(key)) else scrub(field)
                for key, field in value.items()
            }
        case list() | tuple() | set() | frozenset():
            return [scrub(item) for item in value]
        case _:
            return scrub_text(str(value))


def scrub_text(text: str) -> str:
    if len(text) > MAX_TEXT_CHARS:
        text = text[:MAX_TEXT_CHARS] + f"... ({len(text) - MAX_TEXT_CHARS} more characters)"
    if not _SUSPECT.search(text):
        return text
    for detector in _DETECTORS:
        text = detector.scrub(text)
    return text


_scrub_key = lru_cache(maxsize=1024)(scrub_text)


def _passes_luhn(text: str) -> bool:
    digits = [int(character) for character in reversed(text) if character.isdigit()]
    doubled = (2 * digit - 9 * (digit > 4) for digit in digits[1::2])
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


def _is_iban(text: str) -> bool:
    """True if the check digits are right (ISO 13616: modulo 97, letters are numbers from 10).

    Those of one id in 97 are right by chance. In hexadecimal, only text of the length of its country is an IBAN.
    """
    compact = re.sub(r"\W", "", text).upper()
    if re.fullmatch(rf"{_HEX}+", compact) and len(compact) != _HEXADECIMAL_COUNTRIES.get(compact[:2]):
        return False
    number = "".join(str(int(character, 36)) for character in compact[4:] + compact[:4])
    return 15 <= len(compact) <= 34 and int(number) % 97 == 1


_NAMES = (
    r"(?:password|passwd|passphrase|pwd|secret|token|(?:api|access|private|secret)[_-]?key|authorization|credentials?"
    r"|cookies?)"
)
_SECRET_NAME = rf"(?:[\w.-]{{0,40}}{_NAMES}|\w{{0,10}}encryption(?:\.|__)keys(?:\.|__)[\w-]{{1,64}})"
_VALUE = r"[^\s,;&\"'})\]]+"
_KEYS = (
    r"\b(?:(?:sk|pk|rk)[-_][\w-]{12,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abprs]-[\w-]{10,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}\b|AIza[\w-]{30,}|hf_\w{20,}|rag_\w{20,})"
)
_ENCRYPTION_KEY = r"(?<![\w+/])[A-Za-z0-9+/]{43}=(?!=)"
"""32 bytes in base64."""
_HEX = "[0-9A-Fa-f]"
_HEXADECIMAL_COUNTRIES = {"AD": 24, "AE": 23, "BA": 20, "BE": 16, "DE": 22, "EE": 20}
"""The lengths of IBANs in the countries whose code can begin an id in hexadecimal (ISO 13616)."""
_NOT_INSIDE_UUID = "".join(rf"(?<!{_HEX}{{8}}{rf'-{_HEX}{{4}}' * groups}-)" for groups in range(4))
"""Begins no match at a later group of a UUID."""
_SUSPECT = re.compile(
    rf"[@+(]|\d(?:[ -]?\d){{2}}|://|eyJ|-----BEGIN|(?i:{_NAMES}|bearer|basic|encryption)|[A-Za-z]{{2}}\d\d|{_KEYS}|{_ENCRYPTION_KEY}"
)
"""A quick check: without a match, no detector can match. Most lines end here."""
_match_secret_key = lru_cache(maxsize=1024)(re.compile(rf"(?i)^{_SECRET_NAME}$").search)
_DETECTORS = (
    _Detector(
        pattern=re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.S),
        replacement="[key]",
    ),
    _Detector(pattern=re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30}://[^\s:/@]*:)[^\s/]+@"), replacement=r"\1[secret]@"),
    _Detector(pattern=re.compile(r"(?i)\b(bearer|basic)(\s+)[\w.~+/=-]{6,}"), replacement=r"\1\2[secret]"),
    _Detector(
        pattern=re.compile(
            rf"""(?i)(?<![\w.-])({_SECRET_NAME}["']?\s*(?:=|:)\s*)(?!\[secret\])"""
            rf"""("[^"]*"|'[^']*'|{_VALUE}(?:; [\w.-]+={_VALUE})*)"""
        ),
        replacement=r"\1[secret]",
    ),
    _Detector(pattern=re.compile(r"\beyJ[\w-]{5,}\.[\w-]{5,}\.[\w-]*"), replacement="[token]"),
    _Detector(pattern=re.compile(_KEYS), replacement="[key]"),
    _Detector(pattern=re.compile(_ENCRYPTION_KEY), replacement="[key]"),
    _Detector(
        pattern=re.compile(r"[\w.!#$%&*+/=?^{|}~-]{1,64}@(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}"), replacement="[e-mail]"
    ),
    _Detector(
        pattern=re.compile(
            _NOT_INSIDE_UUID + r"\b[A-Za-z]{2}\d{2}(?:[ -]?[A-Za-z0-9]{4}){2,7}(?:[ -]?[A-Za-z0-9]{1,3})?\b"
        ),
        replacement="[iban]",
        applies=_is_iban,
    ),
    _Detector(
        pattern=re.compile(r"(?<![\w-])\d(?:[ -]?\d){12,18}(?![\w-])"), replacement="[card]", applies=_passes_luhn
    ),
    _Detector(pattern=re.compile(r"(?<![\w-])\d{3}-\d{2}-\d{4}(?![\w-])"), replacement="[ssn]"),
    _Detector(pattern=re.compile(r"(?<![\w+])\+\d(?:[ ./-]?\(?\d\)?){2,37}(?!\w)"), replacement="[phone]"),
    _Detector(pattern=re.compile(r"(?<![\w.-])\(?\d{3}\)?[ .-]\d{3}[ .-]\d{4}(?![\w-])"), replacement="[phone]"),
    _Detector(
        pattern=re.compile(r"(?<![\w.,:-])\(?0\d{2,5}\)?[ /-]\d{3,5}(?:[ -]?\d{2,5}){0,2}(?![\w.:-])"),
        replacement="[phone]",
    ),
)
