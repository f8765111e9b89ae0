"""Markdown with YAML front matter."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import date
from math import isfinite
from typing import Any

import yaml

from rag_core.ingestion.parsing.embedded_html import without_html
from rag_core.ingestion.parsing.encoding import decoded
from rag_core.ingestion.parsing.fences import FENCE, Fence
from rag_core.ingestion.parsing.piped_tables import piped
from rag_core.ingestion.parsing.sections import Heading, nested
from rag_core.types import Document, Metadata, Value

VERSION = 4
"""Also of `embedded_html`, `fences` and `piped_tables`."""

_FRONT = re.compile(r"---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
# libyaml's composer recurses in C and ends the process on nesting without bound; nobody writes front matter like that
_LONGEST_FRONT = 16_384
_MOST_BRACKETS = 256
_DEEP = re.compile(r"(?:[-?:][ \t]+){32}")

_MARK = re.compile(
    rf"^(?:{FENCE}| {{0,3}}(?:(?P<hashes>#{{1,6}})(?P<heading>[ \t][^\n]*)?|(?P<rule>={{2,}}|-{{2,}})[ \t]*))$",
    re.MULTILINE,
)
_LONGEST_HEADING = 300
_NO_PARAGRAPH = re.compile(r" {4}|\t| {0,3}(?:[-*+>|#]|\d+[.)] |```|~~~|$)")
_CLOSING = re.compile(r"(?:^|[ \t])#+[ \t]*$")
# A link, an address that is one, and what generators write behind a heading: `{#anchor}`, `{.class}`, `{: ...}`. Paths
# and types keep their `{id}` and `<T>`; inline HTML is gone by then.
_LINK = re.compile(r"!?\[([^\[\]]*)\]\([^()]*\)|<((?:https?|mailto):[^<>\s]*)>|\{[#.:][^{}]*\}[ \t]*$")
_EMPHASIS = re.compile(r"[*`]+|\\(?=[!-/:-@\[-`{-~])|(?<!\w)_+|_+(?!\w)")


class MarkdownParser:
    def parse(self, uri: str, body: bytes) -> Document:
        metadata, text = front_matter(decoded(body))
        document = outlined(Document(uri=uri, text=piped(without_html(text)), media_type="text/markdown"))
        title = str(metadata.get("title", "")).strip() or document.title
        language = str(metadata.get("language") or metadata.get("lang") or "")
        rest = {key: value for key, value in metadata.items() if key not in ("title", "language", "lang")}
        return replace(document, title=title, language=language, metadata=rest)


def front_matter(text: str) -> tuple[Metadata, str]:
    """What stands between the first `---` and the next, and the text after it; what is no YAML mapping stays text."""
    matter = _FRONT.match(text, 0, _LONGEST_FRONT)
    fields = _mapping(matter[1]) if matter else {}
    values = {str(key): value for key, raw in fields.items() if (value := _value(raw)) != ""}
    return (values, text[matter.end() :]) if matter and fields else ({}, text)


def outlined(document: Document) -> Document:
    """With the sections of its Markdown, titled by its first level-1 heading, else by its first."""
    headings = list(_headings(document.text))
    title = next((heading.text for heading in headings if heading.level == 1), headings[0].text if headings else "")
    return replace(document, sections=nested(headings), title=document.title or title)


class _Loader(yaml.CSafeLoader):
    """Without merge keys: they can grow a few lines to gigabytes."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        pass


def _mapping(matter: str) -> Mapping[Any, Any]:
    if matter.count("[") + matter.count("{") > _MOST_BRACKETS or _DEEP.search(matter):
        return {}
    try:
        fields = yaml.load(matter, Loader=_Loader)  # noqa: S506 - a CSafeLoader
    except (yaml.YAMLError, ValueError, TypeError):
        return {}
    return fields if isinstance(fields, dict) else {}


def _value(raw: object) -> Value:
    """Empty for what metadata does not hold."""
    match raw:
        case bool() | int():
            return raw
        case float():
            return raw if isfinite(raw) else ""
        case str():
            return raw.replace("\0", "").strip()  # YAML's escapes can spell it
        case date():
            return raw.isoformat()
        case list():
            return [text for each in raw if (text := _listed(each))]
        case _:
            return ""


def _listed(raw: object) -> str:
    return str(_value(raw)) if isinstance(raw, str | int | float | date) else ""


def _headings(text: str) -> Iterator[Heading]:
    fence = Fence()
    for mark in _MARK.finditer(text):
        if fence.hides(mark):
            continue
        heading = _underlined(text, mark) if mark["rule"] else _atx(mark)
        if 0 < len(heading.text) <= _LONGEST_HEADING:
            yield heading


def _atx(mark: re.Match[str]) -> Heading:
    return Heading(len(mark["hashes"]), _plain(_CLOSING.sub("", mark["heading"] or "")), mark.start())


def _underlined(text: str, mark: re.Match[str]) -> Heading:
    """Only a line of its own: a rule below a longer paragraph was meant as a rule."""
    end = mark.start() - 1
    start = text.rfind("\n", 0, max(end, 0)) + 1
    line = text[start : max(end, 0)]
    before = text[text.rfind("\n", 0, max(start - 1, 0)) + 1 : max(start - 1, 0)]
    alone = not before.strip() or before.lstrip().startswith("#")
    is_heading = alone and not _NO_PARAGRAPH.match(line)
    return Heading(1 if mark["rule"].startswith("=") else 2, _plain(line) if is_heading else "", start)


def _plain(heading: str) -> str:
    return " ".join(_EMPHASIS.sub("", _LINK.sub(r"\1\2", heading)).split())
