"""The numbers and bullets that Word counts up while it lays out a document."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rag_core.parsing.safe_xml import Element

WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
VALUE = f"{WORD}val"

_BULLET = "-"
_PLACE = re.compile(r"%([1-9])")
_ROMAN = ((10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Level:
    format: str
    text: str
    start: int
    legal: bool


@dataclass
class Numbering:
    """`levels` and `counted` by list and by the list that it counts with; `styles` says at which level a style is."""

    levels: Mapping[str, Mapping[int, _Level]] = field(default_factory=dict)
    counted: Mapping[str, str] = field(default_factory=dict)
    restarts: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    styles: Mapping[str, int] = field(default_factory=dict)
    _counts: dict[str, dict[int, int]] = field(default_factory=dict)
    _begun: set[str] = field(default_factory=set)

    def marker(self, number: str, level: int) -> str:
        """The next of this list: `-`, `3.` or `2.1.4`; empty where the list has no such level."""
        found = self.levels.get(number, {}).get(level)
        if found is None or found.format == "none":
            return ""
        self._count(number, level, found)
        return _BULLET if found.format == "bullet" else self._label(number, found)

    def _count(self, number: str, level: int, found: _Level) -> None:
        counts = self._counts.setdefault(self.counted.get(number, number), {})
        if number not in self._begun:
            self._begun.add(number)
            counts.update({each: start - 1 for each, start in self.restarts.get(number, {}).items()})
        counts[level] = counts.get(level, found.start - 1) + 1
        for deeper in [each for each in counts if each > level]:
            del counts[deeper]

    def _label(self, number: str, found: _Level) -> str:
        counts = self._counts[self.counted.get(number, number)]
        levels = self.levels[number]

        def counted(place: re.Match[str]) -> str:
            outer = levels.get(int(place[1]) - 1, found)
            format = "decimal" if found.legal else outer.format
            return written(counts.get(int(place[1]) - 1, outer.start), format)

        return _PLACE.sub(counted, found.text).strip()


def numbering(root: Element) -> Numbering:
    """Of a document's numbering part."""
    abstract = {each.get(f"{WORD}abstractNumId", ""): each for each in root.iterchildren(f"{WORD}abstractNum")}
    numbers = {each.get(f"{WORD}numId", ""): each for each in root.iterchildren(f"{WORD}num")}
    counted = {number: _value(each, f"{WORD}abstractNumId") for number, each in numbers.items()}
    styled = {_value(each, f"{WORD}styleLink") or None: each for each in abstract.values()}
    shared = {
        name: dict(_levels(styled.get(_value(each, f"{WORD}numStyleLink"), each))) for name, each in abstract.items()
    }
    return Numbering(
        levels={
            number: {**shared.get(counted[number], {}), **dict(_overridden(each))} for number, each in numbers.items()
        },
        counted=counted,
        restarts={number: dict(_restarts(each)) for number, each in numbers.items()},
        styles=dict(_styles(root)),
    )


def _levels(parent: Element) -> Iterator[tuple[int, _Level]]:
    for each in parent.iterchildren(f"{WORD}lvl"):
        start = _integer(_value(each, f"{WORD}start"), 1)
        format = _value(each, f"{WORD}numFmt") or "decimal"
        legal = each.find(f"{WORD}isLgl") is not None
        yield _index(each), _Level(format=format, text=_value(each, f"{WORD}lvlText"), start=start, legal=legal)


def _overridden(number: Element) -> Iterator[tuple[int, _Level]]:
    for each in number.iterchildren(f"{WORD}lvlOverride"):
        yield from _levels(each)


def _restarts(number: Element) -> Iterator[tuple[int, int]]:
    for each in number.iterchildren(f"{WORD}lvlOverride"):
        start = _value(each, f"{WORD}startOverride")
        if start:
            yield _index(each), _integer(start, 1)


def _styles(root: Element) -> Iterator[tuple[str, int]]:
    for level in root.iter(f"{WORD}lvl"):
        style = _value(level, f"{WORD}pStyle")
        if style:
            yield style, _index(level)


def _index(level: Element) -> int:
    return _integer(level.get(f"{WORD}ilvl", ""), 0)


def _value(parent: Element, tag: str) -> str:
    found = parent.find(tag)
    return "" if found is None else found.get(VALUE, "")


def _integer(text: str, otherwise: int) -> int:
    return int(text) if text.isdecimal() and len(text) < 9 else otherwise


def written(count: int, format: str) -> str:
    """In the digits or letters that Word's name of a format stands for."""
    match format:
        case "lowerLetter":
            return _letters(count)
        case "upperLetter":
            return _letters(count).upper()
        case "lowerRoman":
            return _roman(count)
        case "upperRoman":
            return _roman(count).upper()
        case "decimalZero":
            return f"{count:02d}"
        case _:
            return str(count)


def _letters(count: int) -> str:
    """As Word goes on after z: aa, bb."""
    turn, place = divmod(max(count, 1) - 1, 26)
    return chr(ord("a") + place) * min(turn + 1, 8)


def _roman(count: int) -> str:
    if not 0 < count < 50:
        return str(count)
    written = ""
    for worth, letters in _ROMAN:
        written += letters * (count // worth)
        count %= worth
    return written
