"""Jupyter notebooks as Markdown, cell by cell. Of the outputs, texts and tables are kept, shortened if they are long.

https://nbformat.readthedocs.io/en/latest/format_description.html, versions 3 and 4.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

from rag_core.errors import DocumentError
from rag_core.parsing.blocks import Block, code_block, heading, join_blocks
from rag_core.parsing.encoding import decode_text
from rag_core.parsing.flags import with_flags
from rag_core.parsing.markup.embedded_html import convert_embedded_html
from rag_core.parsing.markup.piped_tables import add_outer_pipes
from rag_core.parsing.outline import with_outline
from rag_core.types import Document

VERSION = 1

OUTPUTS_SHORTENED = "outputs-shortened"
"""The flag of a notebook of which long outputs were cut."""

Json: TypeAlias = dict[str, Any]

_MAX_OUTPUT_CHARS, _MAX_HTML_CHARS = 2000, 200_000
_ENCODED_IMAGE = re.compile(r"!\[([^\[\]]*)\]\((?:data|attachment):[^()\s]*[^()]*\)")
_TERMINAL_CODE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_OVERWRITTEN = re.compile(r"[^\n]*\r(?!\n)")
_OBJECT = re.compile(r"<[\w.]+(?: [^<>]*)?>")
_TABLE = re.compile(r"<table[\s>].*</table>", re.DOTALL | re.IGNORECASE)


class _Piece(NamedTuple):
    block: Block
    is_shortened: bool = False


class NotebookParser:
    def parse(self, uri: str, body: bytes) -> Document:
        try:
            notebook = _mapping(json.loads(decode_text(body)))
        except (ValueError, RecursionError) as error:
            raise DocumentError("parse", f"damaged notebook: {error}") from error
        metadata = _mapping(notebook.get("metadata"))
        kernel, info = _mapping(metadata.get("kernelspec")), _mapping(metadata.get("language_info"))
        language = _join_lines(info.get("name")) or _join_lines(kernel.get("language")) or "python"
        pieces = [piece for cell in _list_cells(notebook) for piece in _parse_cell(cell, language)]
        authors = [str(name) for author in _mappings(metadata.get("authors")) if (name := author.get("name"))]
        document = Document(
            uri=uri,
            text=join_blocks(piece.block for piece in pieces),
            title=_join_lines(metadata.get("title")),
            media_type="application/x-ipynb+json",
            metadata={"authors": authors} if authors else {},
        )
        is_shortened = any(piece.is_shortened for piece in pieces)
        return with_flags(with_outline(document), [OUTPUTS_SHORTENED] if is_shortened else ())


def _list_cells(notebook: Json) -> list[Json]:
    """The cells; version 3 has them in worksheets."""
    worksheets = _mappings(notebook.get("worksheets"))
    cells = [cell for sheet in worksheets for cell in _mappings(sheet.get("cells"))]
    return cells or _mappings(notebook.get("cells"))


def _parse_cell(cell: Json, language: str) -> Iterator[_Piece]:
    source = _join_lines(cell.get("source", cell.get("input")))
    match cell.get("cell_type"):
        case "code":
            yield _Piece(code_block(source, _join_lines(cell.get("language")) or language))
            for output in _mappings(cell.get("outputs")):
                yield _parse_output(output)
        case "heading":
            level = cell.get("level")
            yield _Piece(heading(level if isinstance(level, int) and level > 0 else 1, source))
        case "markdown":
            yield _Piece(Block(_convert_markdown(source)))
        case "html":
            yield _Piece(Block(convert_embedded_html(source).strip()))
        case _:
            yield _Piece(code_block(source))


def _parse_output(output: Json) -> _Piece:
    """The text of an output, or its table. Pictures, and objects of which only the address is printed, are left out."""
    contents = _mapping(output.get("data")) or output
    html = _join_lines(contents.get("text/html", contents.get("html")))
    if output.get("output_type") in ("error", "pyerr"):
        text = f"{_join_lines(output.get('ename'))}: {_join_lines(output.get('evalue'))}"
    elif table := _TABLE.search(html[:_MAX_HTML_CHARS]):
        markdown = add_outer_pipes(convert_embedded_html(table[0])).strip()
        return _shorten(markdown, Block)
    else:
        text = _join_lines(contents.get("text/plain", contents.get("text")))
    printed = _OVERWRITTEN.sub("", _TERMINAL_CODE.sub("", text)).strip()
    return _Piece(Block("")) if _OBJECT.fullmatch(printed) else _shorten(printed, code_block)


def _shorten(text: str, build: Callable[[str], Block]) -> _Piece:
    """A piece of the text's first lines."""
    if len(text) <= _MAX_OUTPUT_CHARS:
        return _Piece(build(text))
    end = text.rfind("\n", 0, _MAX_OUTPUT_CHARS)
    return _Piece(build(text[: end if end > 0 else _MAX_OUTPUT_CHARS]), is_shortened=True)


def _convert_markdown(source: str) -> str:
    markdown = add_outer_pipes(convert_embedded_html(source))
    return _ENCODED_IMAGE.sub(r"\1", markdown).strip()


def _mapping(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _mappings(values: object) -> list[Json]:
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


def _join_lines(lines: object) -> str:
    """The text, which a notebook stores as a string or as a list of lines."""
    if isinstance(lines, list):
        return "".join(line for line in lines if isinstance(line, str))
    return lines if isinstance(lines, str) else ""
