"""The parsers compared with expected texts: words and table cells that they extract, and their speed.

FOLDER contains files/ and groundtruth/, with one groundtruth/NAME.md for each files/NAME. Word F1 is 2 * overlap / sum
over the lower-cased words as multisets. Cell F1 is the same over the cells of Markdown tables. Neither the order
counts nor the separator between a date and a time of day. A file that cannot be parsed scores 0 in both.

    python -m benchmarks.parse FOLDER
"""

import argparse
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from benchmarks.machine import heading
from rag_core.errors import DocumentError
from rag_core.parsing.document import parse
from rag_core.types import Document

POOR = 0.9
"""The word F1 below which a file is listed."""
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_ESCAPE = re.compile(r"\\(?=[!-/:-@\[-`{-~])")
_LINK = re.compile(r"!?\[([^\[\]]*)\]\([^()\s]*\)")
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d(?::\d\d)?)(?:\.\d+)?")
_RULE = re.compile(r"\|(?:\s*:?-+:?\s*\|)+")
_CELL = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True)
class Score:
    """The scores of one file.

    `seconds` is the time of a second parse, so that imports do not count. `cells` is None if the expected text has no
    table. `reason` is empty if the file was parsed.
    """

    name: str
    format: str
    seconds: float = 0.0
    words: float = 0.0
    cells: float | None = None
    reason: str = ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    print(heading())
    files = sorted(path for path in (folder / "files").iterdir() if path.is_file())
    _report([score(path, folder / "groundtruth" / f"{path.name}.md") for path in files])


def score(path: Path, truth: Path) -> Score:
    suffix, expected = path.suffix[1:].lower(), _normalize_markdown(truth.read_text())
    try:
        read(path)
        start = time.perf_counter()
        document = read(path)
    except DocumentError as error:
        cells = 0.0 if _cells(expected) else None
        return Score(path.name, suffix, cells=cells, reason=f"{error.status}: {error.reason}")
    seconds = time.perf_counter() - start
    actual = _normalize_markdown(document.text)
    cells = f1(_cells(actual), _cells(expected)) if _cells(expected) else None
    return Score(path.name, suffix, seconds, f1(_words(actual), _words(expected)), cells)


def read(path: Path) -> Document:
    return parse(path.as_uri(), path.read_bytes(), detect_language=True, file_mb=200, text_mb=200)


def f1(actual: Counter[str], expected: Counter[str]) -> float:
    total = actual.total() + expected.total()
    return 2 * (actual & expected).total() / total if total else 1.0


def _normalize_markdown(markdown: str) -> str:
    """Removes differences between Markdown writers: comments, escapes and the addresses of links.

    Times are written as 2026-06-18 17:15:52, not 2026-06-18T17:15:52.310.
    """
    return _MOMENT.sub(r"\1 \2", _ESCAPE.sub("", _LINK.sub(r"\1", _COMMENT.sub("", markdown))))


def _words(text: str) -> Counter[str]:
    return Counter(re.findall(r"\w+", text.lower()))


def _cells(text: str) -> Counter[str]:
    rows = [line.strip() for line in text.split("\n") if line.lstrip().startswith("|")]
    cells = (_CELL.split(row.strip("|")) for row in rows if not _RULE.fullmatch(row))
    return Counter(text for row in cells for cell in row if (text := " ".join(cell.lower().split())))


def _report(scores: Iterable[Score]) -> None:
    formats: dict[str, list[Score]] = defaultdict(list)
    for score in scores:
        formats[score.format].append(score)
    print(f"{'format':10}{'files':>6}{'parsed':>8}{'word F1':>9}{'cell F1':>9}{'files/s':>9}")
    for name, format_scores in sorted(formats.items()):
        print(_format_row(name, format_scores))
    for score in (score for format_scores in formats.values() for score in format_scores):
        _print_remark(score)


def _format_row(name: str, scores: list[Score]) -> str:
    parsed = [score for score in scores if not score.reason]
    cells = [score.cells for score in scores if score.cells is not None]
    rate = f"{len(parsed) / sum(score.seconds for score in parsed):.0f}" if parsed else "-"
    columns = (_mean([score.words for score in scores]), _mean(cells), rate)
    return f"{name:10}{len(scores):6}{len(parsed):8}" + "".join(f"{column:>9}" for column in columns)


def _mean(values: list[float]) -> str:
    return f"{mean(values):.3f}" if values else "-"


def _print_remark(score: Score) -> None:
    if score.reason:
        print(f"{score.name}: {score.reason}")
    elif score.words < POOR:
        print(f"{score.name}: word F1 {score.words:.3f}")


if __name__ == "__main__":
    main()
