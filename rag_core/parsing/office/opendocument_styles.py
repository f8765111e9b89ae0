"""The styles of an OpenDocument: formatting that has a meaning, and the markers of lists."""

from collections.abc import Iterable

from rag_core.parsing.office.numbering import format_count
from rag_core.parsing.safe_xml import Element

SCHEMA = "urn:oasis:names:tc:opendocument:xmlns"
STYLE = f"{{{SCHEMA}:style:1.0}}"
TEXT = f"{{{SCHEMA}:text:1.0}}"

_MAX_STYLE_CHAIN = 16
_COUNT_FORMATS = {"1": "decimal", "a": "lowerLetter", "A": "upperLetter", "i": "lowerRoman", "I": "upperRoman"}


class OpenDocumentStyles:
    """The styles in some XML trees, by name. A style in a later tree replaces one of the same name."""

    def __init__(self, roots: Iterable[Element]) -> None:
        self._styles = {
            style.get(f"{STYLE}name", ""): style
            for root in roots
            for style in root.iter(f"{STYLE}style", f"{TEXT}list-style")
        }

    def find_property(self, style: str, kind: str, attribute: str) -> str:
        """The attribute of a style's properties of a kind, such as `text-properties`; empty if it is not set."""
        element = self._styles.get(style)
        properties = None if element is None else element.find(f"{STYLE}{kind}")
        return "" if properties is None else properties.get(attribute, "")

    def is_title(self, style: str) -> bool:
        """True if the style is `Title` or is based on it."""
        for _ in range(_MAX_STYLE_CHAIN):
            if style == "Title" or style not in self._styles:
                break
            style = self._styles[style].get(f"{STYLE}parent-style-name", "")
        return style == "Title"

    def find_numbering(self, style: str, level: int) -> Element | None:
        """The definition of the numbers on a level of a list style; None if the level has bullets."""
        element = self._styles.get(style)
        levels = () if element is None else element.iterchildren(f"{TEXT}list-level-style-number")
        return next((numbering for numbering in levels if numbering.get(f"{TEXT}level") == str(level + 1)), None)


class ListMarkers:
    """Counts the items of lists, by list style and by level, which counts from 0."""

    def __init__(self, styles: OpenDocumentStyles) -> None:
        self._styles = styles
        self._counts: dict[tuple[str, int], int] = {}

    def restart(self, style: str, level: int) -> None:
        self._counts.pop((style, level), None)

    def next_marker(self, style: str, level: int) -> str:
        """Counts one more item: `-`, `3.` or `b)`."""
        numbering = self._styles.find_numbering(style, level)
        format = "" if numbering is None else numbering.get(f"{STYLE}num-format", "")
        if numbering is None or format not in _COUNT_FORMATS:
            return "-"
        start = numbering.get(f"{TEXT}start-value", "1")
        first = int(start) if start.isdecimal() else 1
        self._counts[style, level] = self._counts.get((style, level), first - 1) + 1
        number = format_count(self._counts[style, level], _COUNT_FORMATS[format])
        return f"{numbering.get(f'{STYLE}num-prefix', '')}{number}{numbering.get(f'{STYLE}num-suffix', '')}" or "-"
