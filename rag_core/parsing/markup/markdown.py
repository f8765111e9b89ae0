"""Markdown with YAML front matter."""

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from math import isfinite
from typing import Any

import yaml

from rag_core.parsing.encoding import decoded
from rag_core.parsing.markup.embedded_html import without_html
from rag_core.parsing.markup.piped_tables import piped
from rag_core.parsing.outline import outlined
from rag_core.types import Document, Metadata, Value

VERSION = 4
"""Also the version of `embedded_html`, `fences`, `outline` and `piped_tables`."""

_FRONT = re.compile(r"---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
# libyaml's composer recurses in C and ends the process on nesting without bound; nobody writes front matter like that
_LONGEST_FRONT = 16_384
_MOST_BRACKETS = 256
_DEEP = re.compile(r"(?:[-?:][ \t]+){32}")


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
