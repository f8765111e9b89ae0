"""reStructuredText as Markdown: headings, lists, tables, code and what directives contain.

A reader of our own: docutils stops at the directives and roles of Sphinx. Nothing is included from other files.
"""

import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from textwrap import dedent
from typing import TypeAlias

from rag_core.parsing.blocks import Block, code_block, heading, join_blocks, list_item, paragraph
from rag_core.parsing.encoding import decode_text
from rag_core.parsing.markup.rst_tables import (
    GRID_BORDER,
    SIMPLE_BORDER,
    find_simple_table_end,
    parse_grid_table,
    parse_simple_table,
)
from rag_core.parsing.outline import with_outline
from rag_core.parsing.tables import table
from rag_core.types import Document

VERSION = 1
"""The version of this module and `rst_tables`."""

_MAX_DEPTH = 12
"""The depth of nesting from which lines are read as one paragraph."""

_ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1+")
_MIN_RULE = 4
_DIRECTIVE = re.compile(r"\.\.[ \t]+(?:\|[^|]+\|[ \t]+)?([\w:.+-]+?)::(?:[ \t]+(.*))?")
_FOOTNOTE = re.compile(r"\.\.[ \t]+\[([^\[\]]+)\][ \t]+(.*)")
_EXPLICIT = re.compile(r"(?:\.\.|__)(?:[ \t].*)?")
_OPTION = re.compile(r":([\w-]+):(?:[ \t]+(.*))?")
_FIELD = re.compile(r":([^:`\s][^:\n]*):(?:[ \t]+(.*))?")
_ITEM = re.compile(r"([-*+\u2022]|(?:\d{1,4}|#|[a-z])[.)]|\([0-9a-zA-Z#]\))([ \t]+)(?=\S)")
_SUBSTITUTION = re.compile(r"^\.\.[ \t]+\|([^|\n]+)\|[ \t]+(?:replace|unicode)::[ \t]+(.+)$", re.MULTILINE)
_SUBSTITUTED = re.compile(r"(?<![\w|+-])\|([^|\s](?:[^|\n]*[^|\s])?)\|(?![\w|+-])_{0,2}")

_LITERAL = re.compile(r"(``.+?``)")
_ROLE_NAME = r":[\w.+-]{1,40}(?::[\w.+-]{1,40})?:"
_LINK = re.compile(rf"(?:{_ROLE_NAME})?`([^`<>]+)<[^<>`]*>`_{{0,2}}")
_ROLE = re.compile(rf"{_ROLE_NAME}`[~!]?([^`]*)`")
_REFERENCE = re.compile(r"`([^`]+)`__?(?!\w)|(?<!\w)([^\W_]\w*?)__?(?=[\s.,;:)]|$)|(?<=\])_(?!\w)")
_INTERPRETED = re.compile(r"(?<!`)`([^`]+)`(?!`)")

_CODE = {"code", "code-block", "sourcecode", "parsed-literal", "prompt", "ipython", "math", "productionlist"}
_LEFT_OUT = {"toctree", "contents", "index", "include", "literalinclude", "raw", "meta", "role", "highlight"}
_LEFT_OUT |= {"default-role", "currentmodule", "module", "autosummary", "tabularcolumns", "graphviz", "replace"}
_LEFT_OUT |= {"unicode", "sectnum", "section-numbering", "testsetup", "plot"}
_LABELS = {"seealso": "See also:", "versionadded": "New in version", "versionchanged": "Changed in version"}
_LABELS |= {"deprecated": "Deprecated since version"}
_LABELS |= {name: f"{name.capitalize()}:" for name in ("note", "warning", "tip", "important", "caution", "danger")}
_LABELS |= {name: f"{name.capitalize()}:" for name in ("attention", "hint", "error", "todo")}
_WITHOUT_ARGUMENT = {"figure", "image", "container", "only", "cssclass"}
_OBJECTS = {"function", "class", "method", "attribute", "data", "exception", "option", "envvar", "describe"}

Found: TypeAlias = tuple[list[Block], int]
"""The blocks of a construct, and the index of the line after it."""


class RstParser:
    def parse(self, uri: str, body: bytes) -> Document:
        text = decode_text(body).expandtabs(8)
        substitutions = dict(_SUBSTITUTION.findall(text))
        text = _SUBSTITUTED.sub(lambda match: substitutions.get(match[1], match[0]), text)
        markdown = join_blocks(_parse_blocks(text.split("\n")))
        return with_outline(Document(uri=uri, text=markdown, media_type="text/x-rst"))


def _parse_blocks(lines: Sequence[str], depth: int = 0, level: int = 0) -> Iterator[Block]:
    """`depth` counts the constructs around the lines, and `level` the lists."""
    if depth > _MAX_DEPTH:
        yield paragraph(_inline_text(" ".join(line.strip() for line in lines)))
        return
    styles: list[str] = []
    index = 0
    while index < len(lines):
        if not lines[index].strip():
            index += 1
            continue
        found = _parse_heading(lines, index, styles) if depth == 0 else None
        parsers = iter(_PARSERS)
        while found is None:
            found = next(parsers)(lines, index, depth, level)
        blocks, index = found
        yield from blocks


def _parse_heading(lines: Sequence[str], index: int, styles: list[str]) -> Found | None:
    """A title above a rule, or between two rules. `styles` are the rules in the order of their levels."""
    window = [line.rstrip() for line in lines[index : index + 3]] + ["", ""]
    is_between = _ADORNMENT.fullmatch(window[0]) and window[1].strip() and window[2] == window[0]
    title, rule = (window[1].strip(), window[0]) if is_between else (window[0], window[1])
    is_title = not title.startswith(" ") and not _ADORNMENT.fullmatch(title) and _ADORNMENT.fullmatch(rule)
    if not is_title or len(rule) < min(len(title), _MIN_RULE):
        return None
    style = rule[0] * 2 if is_between else rule[0]
    styles += [style] if style not in styles else []
    return [heading(styles.index(style) + 1, _inline_text(title))], index + (3 if is_between else 2)


def _parse_transition(lines: Sequence[str], index: int, _depth: int, _level: int) -> Found | None:
    line = lines[index].rstrip()
    return ([], index + 1) if len(line) >= _MIN_RULE and _ADORNMENT.fullmatch(line) else None


def _parse_table(lines: Sequence[str], index: int, _depth: int, _level: int) -> Found | None:
    if SIMPLE_BORDER.fullmatch(lines[index]):
        end = find_simple_table_end(lines, index)
        return [_build_table(parse_simple_table(lines[index:end]))], end
    if GRID_BORDER.fullmatch(lines[index]):
        end = _find_end(lines, index, lambda line: line.startswith(("+", "|")))
        return [_build_table(parse_grid_table(lines[index:end]))], end
    return None


def _parse_explicit(lines: Sequence[str], index: int, depth: int, level: int) -> Found | None:
    """A directive or a footnote. Comments, targets and substitutions are left out."""
    line = lines[index].rstrip()
    if not _EXPLICIT.fullmatch(line):
        return None
    end = _find_end(lines, index, _is_indented)
    content = _dedent(lines[index + 1 : end])
    if directive := _DIRECTIVE.fullmatch(line):
        name = directive[1].rpartition(":")[2]
        return list(_directive_blocks(name, directive[2] or "", content, depth, level)), end
    if footnote := _FOOTNOTE.fullmatch(line):
        return list(_parse_blocks([f"[{footnote[1]}] {footnote[2]}", *content], depth + 1, level)), end
    return [], end


def _directive_blocks(name: str, argument: str, lines: Sequence[str], depth: int, level: int) -> Iterator[Block]:
    options: dict[str, str] = {}
    start = 0
    while start < len(lines) and (option := _OPTION.fullmatch(lines[start].rstrip())):
        options[option[1]] = option[2] or ""
        start += 1
    content = lines[start:]
    if name in _LEFT_OUT:
        return
    if name in _CODE:
        code = [*([argument] if name == "math" else []), *content]
        yield code_block("\n".join(code), "math" if name == "math" else argument)
    elif name in ("list-table", "csv-table"):
        yield paragraph(_inline_text(argument))
        yield _build_table(_parse_list_table(content) if name == "list-table" else _parse_csv(options, content))
    elif name in _LABELS:
        yield from _parse_blocks([f"{_LABELS[name]} {argument}".rstrip(), *content], depth + 1, level)
    else:
        shown = options.get("alt", "") if name in _WITHOUT_ARGUMENT else argument
        yield paragraph(f"`{shown}`" if name in _OBJECTS and shown else _inline_text(shown))
        yield from _parse_blocks(content, depth + 1, level)


def _parse_list_table(lines: Sequence[str]) -> list[list[str]]:
    """The rows of a table that is written as a list of lists."""
    column = next((line.find("-") for line in lines if line.startswith("* -")), 0)
    rows: list[list[str]] = []
    for line in lines:
        if line.startswith("*"):
            rows.append([])
        if rows and line[column : column + 1] == "-" and line[:column].strip(" *") == "":
            rows[-1].append(line[column + 1 :].strip())
        elif rows and rows[-1]:
            rows[-1][-1] = f"{rows[-1][-1]} {line.strip()}".strip()
    return rows


def _parse_csv(options: Mapping[str, str], lines: Sequence[str]) -> list[list[str]]:
    text = [options.get("header", ""), *lines]
    try:
        return list(csv.reader(filter(None, text), skipinitialspace=True))
    except csv.Error:
        return [[line] for line in text]


def _parse_item(lines: Sequence[str], index: int, depth: int, level: int) -> Found | None:
    item = _ITEM.match(lines[index])
    if not item:
        return None
    end = _find_end(lines, index, _is_indented)
    content = [lines[index][item.end() :], *_dedent(lines[index + 1 : end])]
    (text, *blocks), rest = _parse_paragraph(content, 0, depth, level) or ([Block("")], 0)
    marker = "-" if item[1] in "*+\u2022" else item[1].replace("#", "1")
    others = _parse_blocks(content[rest:], depth + 1, level + 1)
    return [list_item(text.text, marker, level), *blocks, *others], end


def _parse_field(lines: Sequence[str], index: int, _depth: int, _level: int) -> Found | None:
    field = _FIELD.fullmatch(lines[index].rstrip())
    if not field:
        return None
    end = _find_end(lines, index, _is_indented)
    value = " ".join([field[2] or "", *(line.strip() for line in lines[index + 1 : end])]).strip()
    return [list_item(f"{field[1]}: {_inline_text(value)}" if value else "")], end


def _parse_marked_lines(lines: Sequence[str], index: int, _depth: int, _level: int) -> Found | None:
    """Doctests, which are code, and lines that keep their breaks."""
    if lines[index].startswith(">>> "):
        end = _find_end(lines, index, lambda line: bool(line.strip()))
        return [code_block("\n".join(lines[index:end]), "python")], end
    if lines[index].startswith("| "):
        end = _find_end(
            lines, index, lambda line: line.startswith("|") or (line.startswith(" ") and line.strip() != "")
        )
        return [paragraph("\n".join(_inline_text(line.lstrip("| ")) for line in lines[index:end]))], end
    return None


def _parse_quote(lines: Sequence[str], index: int, depth: int, level: int) -> Found | None:
    if not lines[index].startswith(" "):
        return None
    end = _find_end(lines, index, _is_indented)
    return list(_parse_blocks(_dedent(lines[index:end]), depth + 1, level)), end


def _parse_paragraph(lines: Sequence[str], index: int, depth: int, level: int) -> Found | None:
    """A paragraph, with the code after its `::`; or a term, with its definition."""
    end = _find_end(lines, index, lambda line: bool(line.strip()))
    if end > index + 1 and lines[index + 1].startswith(" ") and not lines[index].startswith(" "):
        end = _find_end(lines, index, _is_indented)
        definition = _parse_blocks(_dedent(lines[index + 1 : end]), depth + 1, level)
        return [paragraph(_inline_text(lines[index].strip())), *definition], end
    text = " ".join(line.strip() for line in lines[index:end])
    if not text.endswith("::"):
        return [paragraph(_inline_text(text))], end
    code_end = _find_end(lines, end - 1, _is_indented)
    shown = text.removesuffix("::").rstrip() + ("" if text.endswith(" ::") or text == "::" else ":")
    return [paragraph(_inline_text(shown)), code_block("\n".join(_dedent(lines[end:code_end])))], code_end


_PARSERS = (
    *(_parse_transition, _parse_table, _parse_explicit, _parse_item, _parse_field, _parse_marked_lines),
    *(_parse_quote, _parse_paragraph),
)


def _find_end(lines: Sequence[str], start: int, belongs: Callable[[str], bool]) -> int:
    """The index of the first line after `start` that does not belong to the construct; the end if all lines do."""
    return next((index for index in range(start + 1, len(lines)) if not belongs(lines[index])), len(lines))


def _is_indented(line: str) -> bool:
    return line.startswith(" ") or not line.strip()


def _dedent(lines: Sequence[str]) -> list[str]:
    return dedent("\n".join(lines)).strip("\n").split("\n")


def _build_table(rows: Sequence[Sequence[str]]) -> Block:
    return table([_inline_text(cell) for cell in row] for row in rows)


def _inline_text(text: str) -> str:
    """The text without roles, references and their targets. Literals become code."""
    parts = _LITERAL.split(text)
    return "".join(part[1:-1] if number % 2 else _strip_references(part) for number, part in enumerate(parts))


def _strip_references(text: str) -> str:
    unescaped = text.replace("\\ ", "")  # an escaped space separates markup from letters
    linked = _ROLE.sub(r"\1", _LINK.sub(lambda link: link[1].rstrip(), unescaped))
    return _INTERPRETED.sub(r"\1", _REFERENCE.sub(lambda match: match[1] or match[2] or "", linked))
