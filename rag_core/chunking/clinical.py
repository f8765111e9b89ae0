"""Chunks of clinical trials and drug labels, each of one clinical role: eligibility, outcomes, dosage, warnings ..."""

import re
from dataclasses import replace
from itertools import groupby
from uuid import UUID

from rag_core.chunking.clinical_roles import is_role_heading, role_of
from rag_core.chunking.outline import Outline, Outliner
from rag_core.chunking.packing import Sentence, merge_sections, pack_sentences
from rag_core.chunking.positions import path_at
from rag_core.protocols import Tokenizer
from rag_core.types import Chunk, Document, Section

_LABEL = re.compile(r"^[ \t]*([A-Za-z][^\n:|]{2,60}?)[ \t]*+(:?)[ \t]*+$", re.MULTILINE)


class ClinicalChunker:
    """Splits as SectionsChunker does, but no chunk contains text of two roles. Its metadata names its `role`."""

    def __init__(self, tokenizer: Tokenizer, tokens: int, overlap: int, prefix_tokens: int) -> None:
        self._outliner, self._tokens, self._overlap = Outliner(tokenizer, tokens, prefix_tokens), tokens, overlap

    def split(self, document_id: UUID, document: Document) -> tuple[Chunk, ...]:
        labelled = replace(document, sections=_add_label_sections(document))
        outline = self._outliner.outline(labelled)
        parts = [
            part
            for _, run in groupby(outline.sentences, key=lambda sentence: _sentence_role(outline, sentence))
            for group in merge_sections(list(run), outline.sections, self._tokens)
            for part in pack_sentences(group, self._tokens, self._overlap)
        ]
        chunks = self._outliner.build_chunks(document_id, labelled, outline, parts)
        roles = (_sentence_role(outline, part[0]) for part in parts)
        return tuple(
            replace(chunk, metadata={**chunk.metadata, "role": role}) for chunk, role in zip(chunks, roles, strict=True)
        )


def _sentence_role(outline: Outline, sentence: Sentence) -> str:
    return role_of(outline.sections[sentence.section].path)


def _add_label_sections(document: Document) -> tuple[Section, ...]:
    """The document's sections, and one for each line such as `Exclusion Criteria:` that is not a heading."""
    known_starts = {section.start for section in document.sections}
    sections = list(document.sections)
    for line in _LABEL.finditer(document.text):
        is_label = (line[2] or line[1].isupper()) and is_role_heading(line[1])
        if is_label and line.start(1) not in known_starts:
            sections.append(Section(path=(*path_at(document, line.start(1)), line[1]), start=line.start(1)))
    return tuple(sorted(sections, key=lambda section: section.start))
