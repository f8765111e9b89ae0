"""The parsers compared with expected texts and with other libraries: words and table cells that they extract, and time.

FOLDER contains files/ and groundtruth/, with one groundtruth/NAME.md for each files/NAME. Word F1 is 2 * overlap / sum
over the lower-cased words as multisets. Cell F1 is the same over the cells of Markdown tables. Neither the order
counts nor the separator between a date and a time of day. A file that cannot be parsed scores 0 in both; a format of
which a reader can parse no file is left out. Times are milliseconds of CPU a file.

--peer adds a reader of `benchmarks.parse_readers`: tesseract (scans of the PDFs), pdfium (the text layer as it is),
unstructured, markitdown or kreuzberg. Each runs in a process of its own, with the Python that is given.

    python -m benchmarks.parse FOLDER --peer pdfium --peer markitdown=/tmp/markitdown/bin/python
"""

import argparse
import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.machine import heading

OURS = "ours"
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

    `seconds` is the CPU time of a second reading, so that imports do not count. `cells` is None if the expected text
    has no table. `reason` is empty if the file was parsed.
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
    parser.add_argument("--peer", action="append", default=[], metavar="NAME[=PYTHON]")
    arguments = parser.parse_args()
    print(heading())
    files = sorted(path for path in (arguments.folder / "files").iterdir() if path.is_file())
    readers = {OURS: sys.executable}
    for peer in arguments.peer:
        name, _, python = peer.partition("=")
        readers[name] = python or sys.executable
    scores = {name: list(score_files(name, python, files)) for name, python in readers.items()}
    _print_table(scores)
    for score in scores[OURS]:
        _print_remark(score)


def score_files(reader: str, python: str, files: Sequence[Path]) -> Iterator[Score]:
    process = subprocess.run(
        [python, "-m", "benchmarks.parse_readers", reader],
        input="".join(f"{path.absolute()}\n" for path in files),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=Path(__file__).parents[1],
        check=True,
    )
    for path, line in zip(files, process.stdout.splitlines(), strict=True):
        truth = path.parent.parent / "groundtruth" / f"{path.name}.md"
        yield score(path, json.loads(line), _normalize_markdown(truth.read_text()))


def score(path: Path, reading: Mapping[str, Any], expected: str) -> Score:
    expected_cells, actual = _cells(expected), _normalize_markdown(reading["text"])
    return Score(
        name=path.name,
        format=path.suffix[1:].lower(),
        seconds=reading["seconds"],
        words=f1(_words(actual), _words(expected)),
        cells=f1(_cells(actual), expected_cells) if expected_cells else None,
        reason=reading["reason"],
    )


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


def _print_table(scores: Mapping[str, Sequence[Score]]) -> None:
    by_format: dict[str, dict[str, list[Score]]] = defaultdict(lambda: defaultdict(list))
    for reader, reader_scores in scores.items():
        for score in reader_scores:
            by_format[score.format][reader].append(score)
    print(f"{'':10}{'':6}" + "".join(f"{reader:^26}" for reader in scores))
    print(f"{'format':10}{'files':>6}" + f"{'word F1':>9}{'cell F1':>8}{'ms':>9}" * len(scores))
    for format_, readers in sorted(by_format.items()):
        columns = "".join(_format_columns(readers[reader]) for reader in scores)
        print(f"{format_:10}{len(readers[OURS]):6}{columns}")


def _format_columns(scores: Sequence[Score]) -> str:
    parsed = [score for score in scores if not score.reason]
    if not parsed:
        return f"{'-':>9}{'-':>8}{'-':>9}"
    cells = [score.cells for score in scores if score.cells is not None]
    milliseconds = mean(score.seconds for score in parsed) * 1000
    return f"{_mean([score.words for score in scores]):>9}{_mean(cells):>8}{milliseconds:>9.1f}"


def _mean(values: Sequence[float]) -> str:
    return f"{mean(values):.3f}" if values else "-"


def _print_remark(score: Score) -> None:
    if score.reason:
        print(f"{score.name}: {score.reason}")
    elif score.words < POOR:
        print(f"{score.name}: word F1 {score.words:.3f}")


if __name__ == "__main__":
    main()
