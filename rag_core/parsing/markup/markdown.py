"""Markdown with YAML front matter."""

import re
from dataclasses import replace
from datetime import date
from math import isfinite

import yaml

from rag_core.parsing.encoding import decode_text
from rag_core.parsing.markup.embedded_html import convert_embedded_html
from rag_core.parsing.markup.piped_tables import add_outer_pipes
from rag_core.parsing.outline import with_outline
from rag_core.types import Document, Metadata, Value

VERSION = 5
"""The version of this module, `embedded_html`, `fences`, `outline` and `piped_tables`."""

_FRONT_MATTER = re.compile(r"---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
# libyaml's composer recurses in C, so that very deep nesting would end the process
_MAX_FRONT_MATTER_CHARS = 16_384
_MAX_BRACKETS = 256
_DEEP_NESTING = re.compile(r"(?:[-?:][ \t]+){32}")


class MarkdownParser:
    def parse(self, uri: str, body: bytes) -> Document:
        metadata, text = split_front_matter(decode_text(body))
        markdown = add_outer_pipes(convert_embedded_html(text))
        document = with_outline(Document(uri=uri, text=markdown, media_type="text/markdown"))
        title = str(metadata.get("title", "")).strip() or document.title
        language = str(metadata.get("language") or metadata.get("lang") or "")
        others = {key: value for key, value in metadata.items() if key not in ("title", "language", "lang")}
        return replace(document, title=title, language=language, metadata=others)


def split_front_matter(text: str) -> tuple[Metadata, str]:
    """The metadata between the first `---` and the next, and the text after it.

    If there is no YAML mapping, or it is nested too deep, the metadata is empty and the text is unchanged.
    """
    match = _FRONT_MATTER.match(text, 0, _MAX_FRONT_MATTER_CHARS)
    if not match or match[1].count("[") + match[1].count("{") > _MAX_BRACKETS or _DEEP_NESTING.search(match[1]):
        return {}, text
    try:
        fields = yaml.load(match[1], Loader=_Loader)  # noqa: S506 - a CSafeLoader
    except (yaml.YAMLError, ValueError, TypeError):
        return {}, text
    if not fields or not isinstance(fields, dict):
        return {}, text
    metadata = {str(key): value for key, raw in fields.items() if (value := _metadata_value(raw)) != ""}
    return metadata, text[match.end() :]


class _Loader(yaml.CSafeLoader):
    """A loader without merge keys: they can grow a few lines to gigabytes."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        pass


def _metadata_value(raw: object) -> Value:
    """The value as metadata stores it; empty for types that it cannot store."""
    match raw:
        case bool() | int():
            return raw
        case float():
            return raw if isfinite(raw) else ""
        case str():
            return raw.replace("\0", "").strip()  # an escape in YAML can spell a NUL
        case date():
            return raw.isoformat()
        case list():
            texts = [str(_metadata_value(entry)) for entry in raw if isinstance(entry, str | int | float | date)]
            return [text for text in texts if text]
        case _:
            return ""
