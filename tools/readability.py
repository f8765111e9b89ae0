"""Measures how readable Python code is: names, docstrings, helpers that are used once, lengths of function bodies.

    python -m tools.readability                        the project's packages, one row
    python -m tools.readability --list 20 rag_core     the offenders too, at most 20 of each kind
    python -m tools.readability --json PATH ...        for machines

Exits with 1 if a figure of the project is above its limit.
"""

import argparse
import ast
import json
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import yaml

PACKAGES = ("rag_core", "serve", "jobs", "rag_cli", "integrations")

LIMITS = {
    "participles": 3.0,
    "fragments": 2.0,
    "vague": 1.5,
    "used_once": 15.0,
    "median": 6,
    "p90": 20,
    "longest": 40,
}
"""The highest value that each figure of the project may have."""

HEADINGS = {
    "lines": "lines",
    "participles": "participle names %",
    "fragments": "docstring fragments %",
    "vague": "vague variables %",
    "used_once": "used once / 1,000",
    "median": "body median",
    "p90": "p90",
    "longest": "max",
}

_WORDS = yaml.safe_load(Path(__file__).with_name("words.yaml").read_text(encoding="utf-8"))
IRREGULAR_PARTICIPLES, NOT_PARTICIPLES, FRAGMENT_OPENINGS, VAGUE_NAMES = (
    frozenset(_WORDS[kind].split())
    for kind in ("irregular_participles", "not_participles", "fragment_openings", "vague_names")
)

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(slots=True)
class Readability:
    """The counts of some files, and the positions of their offenders."""

    lines: int = 0
    functions: int = 0
    docstrings: int = 0
    bindings: int = 0
    bodies: list[int] = field(default_factory=list)
    offenders: dict[str, list[str]] = field(default_factory=dict)

    @property
    def figures(self) -> dict[str, float]:
        """The figures of `HEADINGS`, in its order: percentages, counts per 1,000 lines, and lines."""
        return {
            "lines": self.lines,
            "participles": 100 * self._count("participles") / max(1, self.functions),
            "fragments": 100 * self._count("fragments") / max(1, self.docstrings),
            "vague": 100 * self._count("vague") / max(1, self.bindings),
            "used_once": 1000 * self._count("used_once") / max(1, self.lines),
            "median": statistics.median(self.bodies or [0]),
            "p90": sorted(self.bodies or [0])[int(0.9 * len(self.bodies))],
            "longest": max(self.bodies, default=0),
        }

    @property
    def broken_limits(self) -> list[str]:
        return [name for name, limit in LIMITS.items() if self.figures[name] > limit]

    def add(self, kind: str, position: str) -> None:
        self.offenders.setdefault(kind, []).append(position)

    def _count(self, kind: str) -> int:
        return len(self.offenders.get(kind, []))


def measure(roots: Iterable[Path]) -> Readability:
    """Counts every Python file below the roots. SyntaxError for a file that does not parse."""
    readability = Readability()
    for root in roots:
        for file in sorted(root.rglob("*.py")) if root.is_dir() else [root]:
            _measure_file(readability, file)
    return readability


def is_participle(name: str) -> bool:
    """True if the name's first word is a past participle: `joined`, `_told`, `sent_files`."""
    first = next((word for word in name.split("_") if word), "")
    return first in IRREGULAR_PARTICIPLES or (first.endswith("ed") and first not in NOT_PARTICIPLES)


def is_property(function: Function) -> bool:
    """A property is a value, so a participle is a proper name for it."""
    return any("property" in ast.unparse(decorator) for decorator in function.decorator_list)


def body_lines(function: Function, source: Sequence[str]) -> int:
    """The lines of a function's body, without its docstring, blank lines and comments."""
    statements = function.body[1:] if ast.get_docstring(function) is not None else function.body
    if not statements:
        return 0
    lines = source[statements[0].lineno - 1 : function.end_lineno]
    return sum(bool(line.strip()) and not line.strip().startswith("#") for line in lines)


def _measure_file(readability: Readability, file: Path) -> None:
    text = file.read_text(encoding="utf-8", errors="replace")
    source, tree = text.splitlines(), ast.parse(text)
    readability.lines += len(source)
    for node in ast.walk(tree):
        if isinstance(node, Function):
            readability.functions += 1
            readability.bodies.append(body_lines(node, source))
            if is_participle(node.name) and not is_property(node):
                readability.add("participles", f"{file}:{node.lineno} {node.name}")
            if readability.bodies[-1] > LIMITS["longest"]:
                readability.add("longest", f"{file}:{node.lineno} {node.name}, {readability.bodies[-1]} lines")
        if isinstance(node, ast.Module | ast.ClassDef | Function) and (docstring := ast.get_docstring(node)):
            readability.docstrings += 1
            if docstring.split()[0].strip("`.,:") in FRAGMENT_OPENINGS:
                readability.add("fragments", f"{file}:{getattr(node, 'lineno', 1)} {docstring[:80]!r}")
    for line, name in _bindings(tree):
        readability.bindings += 1
        if name in VAGUE_NAMES:
            readability.add("vague", f"{file}:{line} {name}")
    for line, name in _used_once(tree):
        readability.add("used_once", f"{file}:{line} {name}")


def _bindings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every variable and parameter that is bound, except `self` and `cls`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.arg) and node.arg not in ("self", "cls"):
            yield node.lineno, node.arg


def _used_once(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Private functions that are used at only one position of their file."""
    uses = Counter(
        node.id if isinstance(node, ast.Name) else node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.Attribute)
    )
    functions = {node.name: node.lineno for node in ast.walk(tree) if isinstance(node, Function)}
    for name, line in functions.items():
        if name.startswith("_") and not name.startswith("__") and uses[name] == 1:
            yield line, name


def _print_table(rows: dict[str, Readability]) -> None:
    width = max(len(name) for name in (*rows, "limit"))
    print(" " * width, *HEADINGS.values(), sep="  ")
    for name, readability in rows.items():
        cells = [f"{readability.figures[key]:,.4g}".rjust(len(heading)) for key, heading in HEADINGS.items()]
        print(name.ljust(width), *cells, sep="  ")
    limits = [
        f"{LIMITS[key]:g}".rjust(len(heading)) if key in LIMITS else " " * len(heading)
        for key, heading in HEADINGS.items()
    ]
    print("limit".ljust(width), *limits, sep="  ")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, help="files or folders; default: the project's packages")
    parser.add_argument(
        "--compare", nargs="*", type=Path, default=[], help="folders of other projects; each gets a row"
    )
    parser.add_argument("--list", type=int, default=0, metavar="N", help="print at most N offenders of each kind")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = parser.parse_args()
    project = measure(arguments.paths or [Path(package) for package in PACKAGES])
    rows = {"project": project, **{path.name: measure([path]) for path in arguments.compare}}
    if arguments.json:
        print(json.dumps({name: readability.figures for name, readability in rows.items()}))
    else:
        _print_table(rows)
        for kind, positions in project.offenders.items():
            for position in positions[: arguments.list]:
                print(f"  {kind}: {position}")
    return 1 if project.broken_limits else 0


if __name__ == "__main__":
    sys.exit(main())
