"""What is known about a document beside its text, under the same names whatever its format."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import unquote

from rag_core.text.language import detected
from rag_core.types import Document, Metadata, Value

VERSION = 2

# The first key that a document has gives the value, and all of them go.
_SOURCES = {
    "date": ("date", "meta-date", "meta-article:published_time", "meta-published_time", "meta-dc.date"),
    "description": ("description", "meta-description", "meta-og:description"),
    "authors": ("authors", "author", "meta-author", "meta-article:author", "meta-dc.creator"),
    "tags": ("tags", "keywords", "meta-keywords", "meta-article:tag"),
}
_SEPARATORS = {"authors": ";", "tags": ","}
_NORMALISED = frozenset(key for keys in _SOURCES.values() for key in keys)

_PRIMARY = re.compile(r"([A-Za-z]{2,3})(?:[-_].*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the user wants of metadata. `from_path` is a regular expression with named groups."""

    rename: Mapping[str, str] = field(default_factory=dict)
    drop: Sequence[str] = ()
    from_path: str = ""
    set: Metadata = field(default_factory=dict)


def described(document: Document, detect_language: bool = True) -> Document:
    """With a title, a language where it can be told, and metadata of one shape: `date` and `description` are strings,
    `authors` and `tags` lists of strings.
    """
    language = _primary(document.language) or (detected(document.text) if detect_language else "")
    metadata = _normalised(document.metadata)
    return replace(document, title=document.title or _name(document.uri), language=language, metadata=metadata)


def mapped(document: Document, rules: Rules) -> Document:
    """By the rules in this order: rename, drop, from_path, set; a later one wins. `from_path` gives strings.

    A `language` that comes out of it is the document's, whatever was detected.
    """
    renamed = {rules.rename.get(key, key): value for key, value in _unrenamed_first(document.metadata, rules)}
    kept = {key: value for key, value in renamed.items() if key not in rules.drop}
    metadata = {**kept, **_from_path(document.uri, rules.from_path), **rules.set}
    return replace(
        document, metadata=metadata, language=_primary(str(metadata.get("language", ""))) or document.language
    )


def _unrenamed_first(metadata: Metadata, rules: Rules) -> Iterable[tuple[str, Value]]:
    """So that what is renamed takes the place of what had that name."""
    return sorted(metadata.items(), key=lambda pair: pair[0] in rules.rename)


def _from_path(uri: str, pattern: str) -> Metadata:
    found = re.search(pattern, unquote(uri)) if pattern else None
    return {key: value for key, value in found.groupdict().items() if value} if found else {}


def _normalised(metadata: Metadata) -> Metadata:
    kept = {key: value for key, value in metadata.items() if key not in _NORMALISED and not key.startswith("meta-")}
    found = {key: metadata[name] for key, names in _SOURCES.items() if (name := _first(metadata, names))}
    shaped = {key: _shaped(value, _SEPARATORS.get(key, "")) for key, value in found.items()}
    return kept | {key: value for key, value in shaped.items() if value}


def _first(metadata: Metadata, names: Iterable[str]) -> str:
    return next((name for name in names if metadata.get(name)), "")


def _shaped(value: Value, separator: str) -> Value:
    if not separator:
        return ", ".join(_strings(value, "")) if not isinstance(value, str) else value.strip()
    return _strings(value, separator)


def _strings(value: Value, separator: str) -> list[str]:
    if isinstance(value, str):
        return [part.strip() for part in value.split(separator or None) if part.strip()]
    return [str(value)] if isinstance(value, bool | int | float) else list(value)


def _name(uri: str) -> str:
    """The file's name without its suffix."""
    name = " ".join(unquote(uri.rstrip("/").rpartition("/")[2]).split())
    stem, dot, _ = name.rpartition(".")
    return stem if dot and stem else name


def _primary(language: str) -> str:
    """`de` of `de-DE`; empty for what is no language tag."""
    tag = _PRIMARY.fullmatch(language.strip())
    return tag[1].lower() if tag else ""
