"""Office Open XML packages: their parts, the relations between parts, and the document's properties."""

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from urllib.parse import unquote

from rag_core.errors import DocumentError
from rag_core.parsing.archive import Archive
from rag_core.parsing.blocks import clean_text
from rag_core.parsing.safe_xml import Element, child_elements, element_text, parse_xml
from rag_core.text.titles import has_words
from rag_core.types import Document, Value

RELATIONSHIP = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
COMPATIBILITY = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"

_RELATION = "{http://schemas.openxmlformats.org/package/2006/relationships}Relationship"
_PACKAGE_RELATIONS = "_rels/.rels"
_CORE = "{http://schemas.openxmlformats.org/package/2006/metadata/core-properties}"
_DC = "{http://purl.org/dc/elements/1.1/}"
_TERMS = "{http://purl.org/dc/terms/}"

# The strict variant of ISO 29500 differs only in its namespaces
_STRICT = re.compile(rb"http://purl\.oclc\.org/ooxml/(\w+)/")
_TRANSITIONAL = rb"http://schemas.openxmlformats.org/\1/2006/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """`kind` is the last part of the relation's type: slide, comments, chart. `target` is the name of a part."""

    id: str
    kind: str
    target: str


class Part:
    """An XML file of the package."""

    def __init__(self, archive: Archive, name: str) -> None:
        self._archive, self.name = archive, name

    @cached_property
    def root(self) -> Element:
        return _parse_part(self._archive, self.name)

    @cached_property
    def relations(self) -> Mapping[str, Relation]:
        """Relations by id, without links to other files and to parts that do not exist."""
        folder, _, file = self.name.rpartition("/")
        relations = _read_relations(self._archive, f"{folder}/_rels/{file}.rels", folder)
        return {relation.id: relation for relation in relations}

    def find_parts(self, kind: str) -> "list[Part]":
        """The parts that this one has a relation of this kind to."""
        return [Part(self._archive, relation.target) for relation in self.relations.values() if relation.kind == kind]

    def find_part(self, relation_id: str) -> "Part | None":
        relation = self.relations.get(relation_id)
        return Part(self._archive, relation.target) if relation else None


def main_part(archive: Archive, folder: str) -> Part:
    """The part that holds the document itself. Raises DocumentError if it is not in `folder`."""
    relations = _read_relations(archive, _PACKAGE_RELATIONS, "")
    name = next((relation.target for relation in relations if relation.kind == "officeDocument"), "")
    if not name.startswith(f"{folder}/"):
        raise DocumentError("parse", f"damaged archive: no document in {folder}/")
    return Part(archive, name)


def with_core_properties(document: Document, archive: Archive) -> Document:
    """Adds the package's core properties: title, language, author, date, description and tags."""
    properties = {
        str(element.tag): clean_text(element_text(element))
        for relation in _read_relations(archive, _PACKAGE_RELATIONS, "")
        if relation.kind == "core-properties"
        for element in child_elements(_parse_part(archive, relation.target))
    }
    keywords = re.split("[,;]", properties.get(f"{_CORE}keywords", ""))
    metadata: dict[str, Value] = {
        "author": properties.get(f"{_DC}creator", ""),
        "date": properties.get(f"{_TERMS}modified", "") or properties.get(f"{_TERMS}created", ""),
        "description": properties.get(f"{_DC}description", "") or properties.get(f"{_DC}subject", ""),
        "tags": [tag for keyword in keywords if (tag := keyword.strip())],
    }
    title = properties.get(f"{_DC}title", "")
    return replace(
        document,
        title=title if has_words(title) else "",
        language=properties.get(f"{_DC}language", ""),
        metadata={key: value for key, value in metadata.items() if value},
    )


def first_choice(alternates: Element) -> Iterator[Element]:
    """Yields the first of several renderings of one thing (`mc:AlternateContent`): it is the most complete one."""
    yield from islice(child_elements(alternates), 1)


def _read_relations(archive: Archive, name: str, folder: str) -> Iterator[Relation]:
    """Yields the relations in the file `name`, whose targets are relative to `folder`."""
    name = name.removeprefix("/")
    if name not in archive:
        return
    for element in _parse_part(archive, name).iter(_RELATION):
        target = posixpath.normpath(posixpath.join("/", folder, unquote(element.get("Target", "")))).lstrip("/")
        if element.get("TargetMode") != "External" and target in archive:
            kind = element.get("Type", "").rpartition("/")[2]
            yield Relation(id=element.get("Id", ""), kind=kind, target=target)


def _parse_part(archive: Archive, name: str) -> Element:
    return parse_xml(_STRICT.sub(_TRANSITIONAL, archive.read(name)))
