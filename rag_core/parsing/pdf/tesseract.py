"""OCR by Tesseract: the lines of a picture with their positions, as the layout of a PDF needs them."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby, pairwise
from statistics import median
from typing import NamedTuple

from numpy import uint8
from numpy.typing import NDArray

from rag_core.errors import DocumentError
from rag_core.parsing.blocks import clean_text
from rag_core.parsing.pdf.columns import Cell
from rag_core.parsing.pdf.lines import MIN_CELL_GAP, Line

VERSION = 1

OCR = "ocr"
"""The flag of a document with text that was read by OCR."""

_PROGRAM = "tesseract"
_PACKAGE = "tesseract-ocr"
_MISSING = f"no program {_PROGRAM} on the PATH; install it, e.g. the Debian package {_PACKAGE}"
_POINTS_PER_INCH = 72
_MIN_CONFIDENCE = 30.0  # of 100: below, pictures and specks are read as letters
_LINE_HEIGHT = 0.86  # of the font's size: from the top of long letters to the bottom of others
_MARGIN = 0.1  # of a page's height, at its top and at its bottom
_LARGE = 1.35  # times the usual size: lines with and without long letters differ by less
_BULLET = "\u2022"
_BULLET_READINGS = frozenset("\u00a2\u00a9\u00ab\u00bb\u00ae\u00b0eo")
"""Signs and letters that Tesseract reads for the bullet of a list."""
_MAX_REASON_CHARS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A page in shades of grey, of shape (height, width)."""

    pixels: NDArray[uint8]
    dots_per_inch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tesseract:
    """The program with the languages that it reads. `max_pages` and `timeout`, in seconds, apply to one document."""

    languages: tuple[str, ...]
    max_pages: int
    timeout: float

    @property
    def recipe(self) -> str:
        """What the text depends on: the installed version and the languages."""
        return f"{_PROGRAM} {find_version() or 'missing'} {'+'.join(self.languages)}"

    def find_defect(self) -> str:
        """What is not installed, with the Debian package that installs it; empty if nothing is missing."""
        if not find_version():
            return _MISSING
        missing = [language for language in self.languages if language not in _find_languages()]
        packages = ", ".join(f"{_PACKAGE}-{language.lower().replace('_', '-')}" for language in missing)
        reason = f"{_PROGRAM} has no language {', '.join(missing)}; install it, e.g. the Debian package {packages}"
        return reason if missing else ""

    def read_pages(self, numbers: Sequence[int], draw: Callable[[int], Picture]) -> dict[int, list[Line]]:
        """The lines of the pages, which `draw` returns by number.

        Raises DocumentError if there are too many pages, or if reading them takes too long.
        """
        if defect := self.find_defect():
            raise DocumentError("parse", f"OCR: {defect}", status="skipped")
        if len(numbers) > self.max_pages:
            raise DocumentError(
                "parse", f"too large: {len(numbers)} pages without text, limit {self.max_pages} for OCR"
            )
        deadline = time.monotonic() + self.timeout
        lines: dict[int, list[Line]] = {}
        for number in numbers:
            try:
                picture = draw(number)
                words = _parse_words(self._run(picture, deadline - time.monotonic()))
            except subprocess.TimeoutExpired as error:
                reason = f"OCR took longer than {self.timeout:g} s: {len(lines)} of {len(numbers)} pages read"
                raise DocumentError("parse", reason, True) from error
            lines[number] = build_lines(words, number, picture)
        return lines

    def _run(self, picture: Picture, timeout: float) -> str:
        """The words as tab-separated values. The picture goes in as PGM, so that Tesseract decodes no user's file."""
        height, width = picture.pixels.shape
        options = ["-l", "+".join(self.languages), "--psm", "1", "--dpi", str(picture.dots_per_inch), "tsv"]
        try:
            process = subprocess.run(  # noqa: S603 - the program is on the PATH, the arguments are checked settings
                [_PROGRAM, "stdin", "stdout", *options],
                input=b"P5 %d %d 255\n" % (width, height) + picture.pixels.tobytes(),
                capture_output=True,
                timeout=max(timeout, 0.001),
                env={**os.environ, "OMP_THREAD_LIMIT": "1"},
                check=True,
            )
        except subprocess.CalledProcessError as error:
            reason = " ".join(error.stderr.decode("utf-8", "replace").split())
            raise DocumentError("parse", f"OCR failed: {reason[-_MAX_REASON_CHARS:]}") from error
        return process.stdout.decode("utf-8", "replace")


@cache
def find_version() -> str:
    """The version of the installed program; empty if there is none."""
    return _read_output("--version").partition("\n")[0].removeprefix(_PROGRAM).strip() if shutil.which(_PROGRAM) else ""


def describe_installation() -> str:
    """The version and the languages, or what to install for OCR."""
    version = find_version()
    return f"{version}, {', '.join(sorted(_find_languages()))}" if version else f"{_MISSING}; parsing.ocr requires it"


@cache
def _find_languages() -> frozenset[str]:
    return frozenset(_read_output("--list-langs").splitlines()[1:])


def _read_output(option: str) -> str:
    return subprocess.run([_PROGRAM, option], capture_output=True, text=True, check=False).stdout  # noqa: S603


class _Word(NamedTuple):
    """A word. `place` is the block, paragraph and line; the box is in pixels from the upper left corner."""

    place: tuple[int, int, int]
    left: int
    top: int
    right: int
    bottom: int
    text: str

    @property
    def height(self) -> int:
        return self.bottom - self.top


def _parse_words(table: str) -> list[_Word]:
    words = []
    for row in table.split("\n")[1:]:
        columns = row.split("\t")
        if len(columns) == 12 and float(columns[10]) >= _MIN_CONFIDENCE and (text := clean_text(columns[11])):
            block, part, line, _, left, top, width, height = map(int, columns[2:10])
            words.append(_Word((block, part, line), left, top, left + width, top + height, text))
    return words


def build_lines(words: Iterable[_Word], page: int, picture: Picture) -> list[Line]:
    """The lines of a page. Their letters have the usual size, unless a line is clearly larger."""
    height, width = picture.pixels.shape
    upright, height = _rotate_upright(list(words), width, height)
    lines = [_with_bullet(list(line)) for _, line in groupby(upright, key=lambda word: word.place)]
    sizes = [(max(word.bottom for word in line) - min(word.top for word in line)) / _LINE_HEIGHT for line in lines]
    usual = median(sizes) if sizes else 1.0
    return [
        _build_line(line, page, height, _letter_size(size, usual), _POINTS_PER_INCH / picture.dots_per_inch)
        for line, size in zip(lines, sizes, strict=True)
    ]


def _with_bullet(line: list[_Word]) -> list[_Word]:
    is_item = len(line) > 1 and line[0].text in _BULLET_READINGS
    return [line[0]._replace(text=_BULLET), *line[1:]] if is_item else line


def _letter_size(size: float, usual: float) -> float:
    """The usual size, unless a line is clearly higher: a line without long letters is lower."""
    return usual * round(2 * size / usual) / 2 if size > _LARGE * usual else usual


def _build_line(words: Sequence[_Word], page: int, height: int, size: float, scale: float) -> Line:
    """`height` is that of the page, `size` that of the letters, both in pixels; `scale` is points a pixel."""
    gaps = [
        index for index, (word, other) in enumerate(pairwise(words), 1) if other.left - word.right > MIN_CELL_GAP * size
    ]
    parts = [words[start:end] for start, end in pairwise([0, *gaps, len(words)])] if gaps else []
    baseline = median(height - word.bottom for word in words)
    return Line(
        text=_join(words),
        page=page,
        left=words[0].left * scale,
        right=words[-1].right * scale,
        baseline=baseline * scale,
        size=max(round(size * scale * 2) / 2, 1.0),
        in_margin=not _MARGIN * height < baseline < (1 - _MARGIN) * height,
        cells=tuple(Cell(_join(part), part[0].left * scale, part[-1].right * scale) for part in parts),
    )


def _join(words: Iterable[_Word]) -> str:
    return " ".join(word.text for word in words)


def _rotate_upright(words: Sequence[_Word], width: int, height: int) -> tuple[list[_Word], int]:
    """The words of a page that was scanned sideways or upside down in its upright position, and its height then.

    Tesseract reads such a page, but reports the boxes as scanned. Its lines tell the direction of the text.
    """
    steps = [(a, b) for a, b in pairwise(words) if a.place == b.place]
    right = sum(b.left - a.left for a, b in steps)
    down = sum(b.top - a.top for a, b in steps)
    if abs(right) >= abs(down):
        if right >= 0:
            return list(words), height
        turned = [(width - word.right, height - word.bottom, width - word.left, height - word.top) for word in words]
        return _replace_boxes(words, turned), height
    if down > 0:
        turned = [(word.top, width - word.right, word.bottom, width - word.left) for word in words]
    else:
        turned = [(height - word.bottom, word.left, height - word.top, word.right) for word in words]
    return _replace_boxes(words, turned), width


def _replace_boxes(words: Iterable[_Word], boxes: Iterable[tuple[int, int, int, int]]) -> list[_Word]:
    return [_Word(word.place, *box, word.text) for word, box in zip(words, boxes, strict=True)]
