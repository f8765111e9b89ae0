"""Numbers and bullets of lists, which Word does not store but counts when it lays out a document."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rag_core.parsing.safe_xml import Element

WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
VALUE = f"{WORD}val"

_BULLET = "-"
_COUNT_OF_LEVEL = re.compile(r"%([1-9])")
_ROMAN_DIGITS = ((10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Level:
    """`text` is the pattern of a marker, in which `%2` means the count of the second level.

    `is_legal`: the counts of all levels are in decimal digits.
    """

    format: str
    text: str
    start: int
    is_legal: bool

    def label(self, levels: Mapping[int, "_Level"], counts: Mapping[int, int]) -> str:
        """The pattern with the counts of all levels filled in."""

        def format_level(match: re.Match[str]) -> str:
            number = int(match[1]) - 1
            level = levels.get(number, self)
            return format_count(counts.get(number, level.start), "decimal" if self.is_legal else level.format)

        return _COUNT_OF_LEVEL.sub(format_level, self.text).strip()


@dataclass
class Numbering:
    """The lists of a document by id, and how far each has been counted.

    `levels` holds the levels of each list. Lists with the same value in `counters` count on together. `restarts` holds
    the numbers at which a list begins again, by level. `style_levels` holds the list level of a paragraph style.
    """

    levels: Mapping[str, Mapping[int, _Level]] = field(default_factory=dict)
    counters: Mapping[str, str] = field(default_factory=dict)
    restarts: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    style_levels: Mapping[str, int] = field(default_factory=dict)
    _counts: dict[str, dict[int, int]] = field(default_factory=dict)
    _started: set[str] = field(default_factory=set)

    def next_marker(self, list_id: str, level: int) -> str:
        """Counts one more item of a list: `-`, `3.` or `2.1.4`; empty if the list has no such level."""
        levels = self.levels.get(list_id, {})
        if level not in levels or levels[level].format == "none":
            return ""
        counts = self._counts.setdefault(self.counters.get(list_id, list_id), {})
        if list_id not in self._started:
            self._started.add(list_id)
            counts.update({restarted: start - 1 for restarted, start in self.restarts.get(list_id, {}).items()})
        counts[level] = counts.get(level, levels[level].start - 1) + 1
        for deeper in [counted for counted in counts if counted > level]:
            del counts[deeper]
        return _BULLET if levels[level].format == "bullet" else levels[level].label(levels, counts)


def read_numbering(root: Element) -> Numbering:
    """Reads the numbering part of a document."""
    definitions = {child.get(f"{WORD}abstractNumId", ""): child for child in root.iterchildren(f"{WORD}abstractNum")}
    lists = {child.get(f"{WORD}numId", ""): child for child in root.iterchildren(f"{WORD}num")}
    counters = {list_id: child_value(element, "abstractNumId") for list_id, element in lists.items()}
    by_style = {style: child for child in definitions.values() if (style := child_value(child, "styleLink"))}
    linked = {id: by_style.get(child_value(child, "numStyleLink"), child) for id, child in definitions.items()}
    shared = {id: dict(_read_levels(definition)) for id, definition in linked.items()}
    levels, restarts = {}, {}
    for list_id, element in lists.items():
        overrides = list(element.iterchildren(f"{WORD}lvlOverride"))
        own_levels = dict(level for override in overrides for level in _read_levels(override))
        levels[list_id] = {**shared.get(counters[list_id], {}), **own_levels}
        starts = [(_level_index(override), child_value(override, "startOverride")) for override in overrides]
        restarts[list_id] = {level: _parse_count(start, 1) for level, start in starts if start}
    styles = [(child_value(level, "pStyle"), _level_index(level)) for level in root.iter(f"{WORD}lvl")]
    style_levels = {style: index for style, index in styles if style}
    return Numbering(levels=levels, counters=counters, restarts=restarts, style_levels=style_levels)


def _read_levels(parent: Element) -> Iterator[tuple[int, _Level]]:
    for child in parent.iterchildren(f"{WORD}lvl"):
        yield (
            _level_index(child),
            _Level(
                format=child_value(child, "numFmt") or "decimal",
                text=child_value(child, "lvlText"),
                start=_parse_count(child_value(child, "start"), 1),
                is_legal=child.find(f"{WORD}isLgl") is not None,
            ),
        )


def _level_index(level: Element) -> int:
    return _parse_count(level.get(f"{WORD}ilvl", ""), 0)


def _parse_count(text: str, default: int) -> int:
    return int(text) if text.isdecimal() and len(text) < 9 else default


def child_value(parent: Element | None, name: str) -> str:
    """The `w:val` of the child with this name; empty if there is none."""
    child = None if parent is None else parent.find(f"{WORD}{name}")
    return "" if child is None else child.get(VALUE, "")


def format_count(count: int, format: str) -> str:
    """A count in the digits or letters of a format, by Word's name of it; decimal if the name is unknown."""
    match format:
        case "lowerLetter":
            return _letters(count)
        case "upperLetter":
            return _letters(count).upper()
        case "lowerRoman":
            return _roman_digits(count)
        case "upperRoman":
            return _roman_digits(count).upper()
        case "decimalZero":
            return f"{count:02d}"
        case _:
            return str(count)


def _letters(count: int) -> str:
    """Letters as Word counts: aa and bb follow z."""
    round, index = divmod(max(count, 1) - 1, 26)
    return chr(ord("a") + index) * min(round + 1, 8)


def _roman_digits(count: int) -> str:
    if not 0 < count < 50:
        return str(count)
    digits = ""
    for value, letters in _ROMAN_DIGITS:
        digits += letters * (count // value)
        count %= value
    return digits
