"""Chunks of trials and drug labels, each of one clinical role: eligibility, outcomes, dosage, warnings ..."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from uuid import UUID

from rag_core.chunking.clinical_roles import is_role, role_of
from rag_core.chunking.outline import Outline, Outliner
from rag_core.chunking.packing import Sentence, merged, packed
from rag_core.chunking.positions import path_at
from rag_core.protocols import Tokenizer
from rag_core.types import Chunk, Document, Section

_LABEL = re.compile(r"^[ \t]*([A-Za-z][^\n:|]{2,60}?)[ \t]*+(:?)[ \t]*+$", re.MULTILINE)


class ClinicalChunker:
    """As by sections, but no chunk holds text of two roles, and its metadata names its `role`."""

    def __init__(self, tokenizer: Tokenizer, tokens: int, overlap: int, prefix_tokens: int) -> None:
        self._outliner, self._tokens, self._overlap = Outliner(tokenizer, tokens, prefix_tokens), tokens, overlap

    def split(self, document_id: UUID, document: Document) -> tuple[Chunk, ...]:
        labelled = replace(document, sections=_with_labels(document))
        outline = self._outliner.outline(labelled)
        parts = list(self._parts(outline))
        chunks = self._outliner.chunks(document_id, labelled, outline, parts)
        roles = (_role(outline, part[0]) for part in parts)
        return tuple(
            replace(chunk, metadata={**chunk.metadata, "role": role}) for chunk, role in zip(chunks, roles, strict=True)
        )

    def _parts(self, outline: Outline) -> Iterator[Sequence[Sentence]]:
        for _, run in groupby(outline.sentences, key=lambda sentence: _role(outline, sentence)):
            for group in merged(list(run), outline.sections, self._tokens):
                yield from packed(group, self._tokens, self._overlap)


def _role(outline: Outline, sentence: Sentence) -> str:
    return role_of(outline.sections[sentence.section].path)


def _with_labels(document: Document) -> tuple[Section, ...]:
    """The document's sections, and one for each line such as `Exclusion Criteria:` that is no heading."""
    known = {section.start for section in document.sections}
    labels = [section for section in _labels(document) if section.start not in known]
    return tuple(sorted((*document.sections, *labels), key=lambda section: section.start))


def _labels(document: Document) -> Iterator[Section]:
    for line in _LABEL.finditer(document.text):
        if (line[2] or line[1].isupper()) and is_role(line[1]):
            yield Section(path=(*path_at(document, line.start(1)), line[1]), start=line.start(1))
