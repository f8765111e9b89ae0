"""Documents that the library unstructured reads: its elements as headings, lists, Markdown tables and pages.

The library is kept from the network: it would report its use, and download a spaCy model on first use.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from io import BytesIO
from itertools import accumulate
from typing import Any, TypeAlias

import lxml.html

from rag_core.errors import DocumentError, describe_error
from rag_core.parsing.blocks import Block, heading, join_blocks, list_item, paragraph
from rag_core.parsing.encoding import decode_text
from rag_core.parsing.markup.xml import parse_table
from rag_core.parsing.outline import with_outline
from rag_core.parsing.pages import with_slides
from rag_core.parsing.tables import table
from rag_core.types import Document

VERSION = 1

PARTITIONERS = {
    "csv": ("csv", "partition_csv"),
    "docx": ("docx", "partition_docx"),
    "html": ("html", "partition_html"),
    "markdown": ("md", "partition_md"),
    "pptx": ("pptx", "partition_pptx"),
    "xls": ("xlsx", "partition_xlsx"),
    "xlsx": ("xlsx", "partition_xlsx"),
}
"""The module and the function of the library, by format."""

_TEXTS = ("csv", "markdown")
_MARKUP = ("html", "markdown")
_SHEETS = ("xls", "xlsx")
_SHEET_LEVEL = 2
_SILENT = {"DO_NOT_TRACK": "true", "SCARF_NO_ANALYTICS": "true", "UNSTRUCTURED_DISABLE_NOTICE": "1"}
_Element: TypeAlias = Any  # the library's own class: importing it takes seconds


class UnstructuredParser:
    def __init__(self, format_: str, strategy: str) -> None:
        """Loads the library, which takes seconds. Raises ModuleNotFoundError if it is not installed."""
        self._format, self._strategy = format_, strategy
        self._partition = _load_partitioner(*PARTITIONERS[format_])

    def parse(self, uri: str, body: bytes) -> Document:
        elements = self._read_elements(body)
        if not elements:
            raise DocumentError("parse", "empty", status="skipped")
        document = Document(
            uri=uri,
            text="",
            media_type=elements[0].metadata.filetype or "",
            metadata={"categories": sorted({element.category for element in elements} - {"PageBreak"})},
        )
        pages = _group_pages(elements)
        if self._format == "pptx":
            return with_slides(document, map(self._split_title, pages))
        texts = [join_blocks(self._render(page)) for page in pages]
        starts = tuple(accumulate((len(text) + 1 if text else 0 for text in texts[:-1]), initial=0))
        outlined = with_outline(replace(document, text="\n".join(filter(None, texts))))
        return replace(outlined, pages=starts if len(pages) > 1 and self._format not in _SHEETS else ())

    def _read_elements(self, body: bytes) -> Sequence[_Element]:
        options = {"encoding": "utf-8"} if self._format in _TEXTS else {}
        content = decode_text(body).encode("utf-8", "replace") if self._format in _TEXTS else body
        try:
            # an empty language turns off its detection, which differs from run to run
            elements: Sequence[_Element] = self._partition(
                file=BytesIO(content), strategy=self._strategy, languages=[""], **options
            )
        except MemoryError:
            raise
        except Exception as error:  # it raises the errors of a dozen libraries
            reason = " ".join(describe_error(error).split())
            raise DocumentError("parse", f"unstructured failed: {reason[:300]}") from error
        return elements

    def _split_title(self, slide: Sequence[_Element]) -> tuple[str, list[Block]]:
        titles = [element for element in slide if self._heading_level(element)]
        return titles[0].text if titles else "", list(self._render([e for e in slide if e not in titles[:1]]))

    def _render(self, elements: Sequence[_Element]) -> Iterator[Block]:
        if self._format in _SHEETS and elements:
            yield heading(_SHEET_LEVEL, elements[0].metadata.page_name or "")
        list_level = -1
        for element in elements:
            if element.category == "ListItem":
                depth = (element.metadata.category_depth or 0) - (self._format in _MARKUP)
                list_level = max(0, min(depth, list_level + 1))  # a deeper one would be code
                yield list_item(element.text, level=list_level)
            else:
                list_level = -1
                yield _render_element(element, self._heading_level(element))

    def _heading_level(self, element: _Element) -> int:
        """The level of a heading, from 1; 0 for other elements, and for titles that were guessed from their words."""
        depth = element.metadata.category_depth
        is_guess = depth is None or (self._format == "pptx" and depth > 0)
        return depth + 1 if element.category == "Title" and not is_guess else 0


@cache
def _load_partitioner(module: str, function: str) -> Callable[..., Sequence[_Element]]:
    os.environ.update(_SILENT)
    vars(import_module("unstructured.nlp.tokenize"))["_get_nlp"] = _blank_pipeline
    partition: Callable[..., Sequence[_Element]] = getattr(import_module(f"unstructured.partition.{module}"), function)
    return partition


@cache
def _blank_pipeline() -> Any:
    """A pipeline without a model. It knows no verbs, so that titles guessed from the words are not used below."""
    pipeline = import_module("spacy").blank("en")
    pipeline.add_pipe("sentencizer")
    return pipeline


def _group_pages(elements: Iterable[_Element]) -> list[list[_Element]]:
    """The elements of each page, or slide, or sheet. An element without a number belongs to the current page."""
    pages: list[list[_Element]] = [[]]
    for element in elements:
        number = element.metadata.page_number or 0
        pages += [[] for _ in range(number - len(pages))]
        if element.category != "PageBreak":
            pages[-1].append(element)
    return pages


def _render_element(element: _Element, heading_level: int) -> Block:
    if heading_level:
        return heading(heading_level, element.text)
    if element.category == "Table" and element.metadata.text_as_html:
        return table(parse_table(lxml.html.fragment_fromstring(element.metadata.text_as_html)))
    return Block(f"```\n{element.text}\n```") if element.category == "CodeSnippet" else paragraph(element.text)
