"""Parsers against a ground truth: how many of its words and table cells come out, and how fast.

FOLDER holds files/ and groundtruth/, the latter with NAME.md for each files/NAME. Word F1 is 2 * overlap / sum over the
lower-cased words as multisets, cell F1 the same over the cells of Markdown tables. Order is not looked at, nor how
a time of day is set off from its date. A file that cannot be parsed has 0 of both.

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
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_ESCAPE = re.compile(r"\\(?=[!-/:-@\[-`{-~])")
_LINK = re.compile(r"!?\[([^\[\]]*)\]\([^()\s]*\)")
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d(?::\d\d)?)(?:\.\d+)?")
_RULE = re.compile(r"\|(?:\s*:?-+:?\s*\|)+")
_CELL = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True)
class Score:
    """`seconds` are those of a second reading, without imports. `cells` is None where the truth has no table; `reason`
    is empty for what was parsed.
    """

    name: str
    format: str
    seconds: float = 0.0
    words: float = 0.0
    cells: float | None = None
    reason: str = ""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path)
    folder: Path = arguments.parse_args().folder
    print(heading())
    files = sorted(path for path in (folder / "files").iterdir() if path.is_file())
    _report([score(path, folder / "groundtruth" / f"{path.name}.md") for path in files])


def score(path: Path, truth: Path) -> Score:
    suffix, wanted = path.suffix[1:].lower(), _plain(truth.read_text())
    try:
        read(path)
        start = time.perf_counter()
        document = read(path)
    except DocumentError as error:
        cells = 0.0 if _cells(wanted) else None
        return Score(path.name, suffix, cells=cells, reason=f"{error.status}: {error.reason}")
    seconds = time.perf_counter() - start
    found = _plain(document.text)
    cells = f1(_cells(found), _cells(wanted)) if _cells(wanted) else None
    return Score(path.name, suffix, seconds, f1(_words(found), _words(wanted)), cells)


def read(path: Path) -> Document:
    return parse(path.as_uri(), path.read_bytes(), detect_language=True, file_mb=200, text_mb=200)


def f1(found: Counter[str], wanted: Counter[str]) -> float:
    total = found.total() + wanted.total()
    return 2 * (found & wanted).total() / total if total else 1.0


def _plain(markdown: str) -> str:
    """Without what one Markdown writer escapes and another does not, and without the addresses of links. A moment is
    written one way: 2026-06-18 17:15:52, not 2026-06-18T17:15:52.310.
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
    for each in scores:
        formats[each.format].append(each)
    print(f"{'format':10}{'files':>6}{'parsed':>8}{'word F1':>9}{'cell F1':>9}{'files/s':>9}")
    for name, of_format in sorted(formats.items()):
        print(_line(name, of_format))
    for each in (each for of_format in formats.values() for each in of_format):
        _remark(each)


def _line(name: str, scores: list[Score]) -> str:
    parsed = [each for each in scores if not each.reason]
    cells = [each.cells for each in scores if each.cells is not None]
    rate = f"{len(parsed) / sum(each.seconds for each in parsed):.0f}" if parsed else "-"
    columns = (_mean([each.words for each in scores]), _mean(cells), rate)
    return f"{name:10}{len(scores):6}{len(parsed):8}" + "".join(f"{column:>9}" for column in columns)


def _mean(values: list[float]) -> str:
    return f"{mean(values):.3f}" if values else "-"


def _remark(each: Score) -> None:
    if each.reason:
        print(f"{each.name}: {each.reason}")
    elif each.words < POOR:
        print(f"{each.name}: word F1 {each.words:.3f}")


if __name__ == "__main__":
    main()
