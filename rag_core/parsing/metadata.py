"""Title, language and metadata of a document, under the same names in every format."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import unquote

from rag_core.text.language import identify_language
from rag_core.text.titles import file_name, has_words, split_name
from rag_core.types import Document, Metadata, Section, Value

VERSION = 3

# The first key that a document has gives the value; all of these keys are removed.
_SOURCES = {
    "date": ("date", "meta-date", "meta-article:published_time", "meta-published_time", "meta-dc.date"),
    "description": ("description", "meta-description", "meta-og:description"),
    "authors": ("authors", "author", "meta-author", "meta-article:author", "meta-dc.creator"),
    "tags": ("tags", "keywords", "meta-keywords", "meta-article:tag"),
}
_SEPARATORS = {"authors": ";", "tags": ","}
_SOURCE_KEYS = frozenset(key for keys in _SOURCES.values() for key in keys)

_MAX_TITLE_CHARS = 500
"""The characters of a title or heading that are kept: the prefix of every chunk can repeat them."""
_LANGUAGE_TAG = re.compile(r"([A-Za-z]{2,3})(?:[-_].*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataRules:
    """The user's changes to metadata. `from_path` is a regular expression with named groups.

    Its group `title` becomes the document's title.
    """

    rename: Mapping[str, str] = field(default_factory=dict)
    drop: Sequence[str] = ()
    from_path: str = ""
    set: Metadata = field(default_factory=dict)


def complete_metadata(document: Document, detect_language: bool = True) -> Document:
    """The document with a title, a language if it can be identified, and normalized metadata.

    A title without words becomes the first heading, or the words of the file's name. `date` and `description` become
    strings, `authors` and `tags` lists of strings.
    """
    language = _primary_language(document.language)
    if detect_language and not language:
        language = identify_language(document.text)
    return replace(
        document,
        title=_choose_title(document)[:_MAX_TITLE_CHARS],
        language=language,
        metadata=_normalize_metadata(document.metadata),
        sections=tuple(map(_shorten_headings, document.sections)),
    )


def _choose_title(document: Document) -> str:
    """The first of title, first heading and file name that has words; if none has, the first that is not empty."""
    # the headings of JSON are its keys
    path = document.sections[0].path if document.sections and document.media_type != "application/json" else ()
    name = file_name(document.uri)
    candidates = [document.title, *path[-1:], split_name(name) or name]
    return next(filter(has_words, candidates), document.title or candidates[-1])


def _shorten_headings(section: Section) -> Section:
    """Bounds the headings, which every chunk of the section repeats."""
    if all(len(heading) <= _MAX_TITLE_CHARS for heading in section.path):
        return section
    return replace(section, path=tuple(heading[:_MAX_TITLE_CHARS] for heading in section.path))


def apply_rules(document: Document, rules: MetadataRules) -> Document:
    """Applies the rules in the order rename, drop, from_path, set; a later one wins. `from_path` gives strings.

    A `language` in the resulting metadata becomes the document's language.
    """
    # renamed keys last, so that they replace a key that already had that name
    ordered = sorted(document.metadata.items(), key=lambda pair: pair[0] in rules.rename)
    renamed = {rules.rename.get(key, key): value for key, value in ordered}
    remaining = {key: value for key, value in renamed.items() if key not in rules.drop}
    match = re.search(rules.from_path, unquote(document.uri)) if rules.from_path else None
    from_path = {key: value for key, value in match.groupdict().items() if value} if match else {}
    title = split_name(from_path.pop("title", "")) or document.title
    metadata = {**remaining, **from_path, **rules.set}
    language = _primary_language(str(metadata.get("language", ""))) or document.language
    return replace(document, title=title, metadata=metadata, language=language)


def _normalize_metadata(metadata: Metadata) -> Metadata:
    normalized = {
        key: value for key, value in metadata.items() if key not in _SOURCE_KEYS and not key.startswith("meta-")
    }
    for key, names in _SOURCES.items():
        value = next((value for name in names if (value := metadata.get(name))), "")
        if key in _SEPARATORS:
            value = _split_value(value, _SEPARATORS[key])
        elif isinstance(value, str):
            value = value.strip()
        else:
            value = ", ".join(_split_value(value, ""))
        if value:
            normalized[key] = value
    return normalized


def _split_value(value: Value, separator: str) -> list[str]:
    if isinstance(value, str):
        return [part.strip() for part in value.split(separator or None) if part.strip()]
    return [str(value)] if isinstance(value, bool | int | float) else list(value)


def _primary_language(language: str) -> str:
    """`de` for `de-DE`; empty if it is not a language tag."""
    tag = _LANGUAGE_TAG.fullmatch(language.strip())
    return tag[1].lower() if tag else ""
