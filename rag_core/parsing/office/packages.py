"""Office Open XML packages: parts, what they are related to, and the document's properties."""

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from urllib.parse import unquote

from rag_core.errors import DocumentError
from rag_core.parsing.archive import Archive
from rag_core.parsing.blocks import clean
from rag_core.parsing.safe_xml import Element, elements, parsed, spoken
from rag_core.types import Document, Value

RELATIONSHIP = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
COMPATIBILITY = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"

_RELATION = "{http://schemas.openxmlformats.org/package/2006/relationships}Relationship"
_CORE = "{http://schemas.openxmlformats.org/package/2006/metadata/core-properties}"
_DC = "{http://purl.org/dc/elements/1.1/}"
_TERMS = "{http://purl.org/dc/terms/}"

# ISO's strict variant differs in its namespaces alone
_STRICT = re.compile(rb"http://purl\.oclc\.org/ooxml/(\w+)/")
_TRANSITIONAL = rb"http://schemas.openxmlformats.org/\1/2006/"

# What programs write when nobody has given a title
_NO_TITLE = re.compile(r"(?:PowerPoint|Microsoft|Untitled)\b.*|(?:Document|Presentation|Slide|Book) ?\d*", re.I)


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """`kind` is the last part of its type: slide, comments, chart; `target` a part's name."""

    id: str
    kind: str
    target: str


class Part:
    """One XML file of the package, and the parts that it names."""

    def __init__(self, archive: Archive, name: str) -> None:
        self._archive, self.name = archive, name

    @cached_property
    def root(self) -> Element:
        return _root(self._archive, self.name)

    @cached_property
    def relations(self) -> Mapping[str, Relation]:
        """By id, without links to the outside and to what is not there."""
        folder, _, file = self.name.rpartition("/")
        return {relation.id: relation for relation in _relations(self._archive, f"{folder}/_rels/{file}.rels", folder)}

    def related(self, kind: str) -> "list[Part]":
        return [Part(self._archive, each.target) for each in self.relations.values() if each.kind == kind]

    def named(self, relation: str) -> "Part | None":
        """The part that the relation of this id leads to."""
        found = self.relations.get(relation)
        return Part(self._archive, found.target) if found else None


def main_part(archive: Archive, folder: str) -> Part:
    """The part that the package is about. DocumentError if it does not lie in `folder`."""
    found = next((each.target for each in _relations(archive, "_rels/.rels", "") if each.kind == "officeDocument"), "")
    if not found.startswith(f"{folder}/"):
        raise DocumentError("parse", f"damaged archive: no document in {folder}/")
    return Part(archive, found)


def described(document: Document, archive: Archive) -> Document:
    """With what the package's core properties say."""
    said = dict(_properties(archive))
    metadata: dict[str, Value] = {
        "author": said.get(f"{_DC}creator", ""),
        "date": said.get(f"{_TERMS}modified", "") or said.get(f"{_TERMS}created", ""),
        "description": said.get(f"{_DC}description", "") or said.get(f"{_DC}subject", ""),
        "tags": [tag for each in re.split("[,;]", said.get(f"{_CORE}keywords", "")) if (tag := each.strip())],
    }
    title = said.get(f"{_DC}title", "")
    return replace(
        document,
        title="" if _NO_TITLE.fullmatch(title) else title,
        language=said.get(f"{_DC}language", ""),
        metadata={key: value for key, value in metadata.items() if value},
    )


def chosen(alternates: Element) -> Iterator[Element]:
    """Of the renderings of one thing the first, which is the fullest."""
    yield from islice(elements(alternates), 1)


def _properties(archive: Archive) -> Iterator[tuple[str, str]]:
    for relation in _relations(archive, "_rels/.rels", ""):
        if relation.kind == "core-properties":
            for element in elements(_root(archive, relation.target)):
                yield str(element.tag), clean(spoken(element))


def _relations(archive: Archive, name: str, folder: str) -> Iterator[Relation]:
    name = name.removeprefix("/")
    if name not in archive:
        return
    for each in _root(archive, name).iter(_RELATION):
        target = posixpath.normpath(posixpath.join("/", folder, unquote(each.get("Target", "")))).lstrip("/")
        if each.get("TargetMode") != "External" and target in archive:
            yield Relation(id=each.get("Id", ""), kind=each.get("Type", "").rpartition("/")[2], target=target)


def _root(archive: Archive, name: str) -> Element:
    return parsed(_STRICT.sub(_TRANSITIONAL, archive.read(name)))
