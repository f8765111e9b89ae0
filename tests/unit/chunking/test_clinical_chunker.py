import time
from uuid import UUID

import pytest

from rag_core.chunking.clinical import ClinicalChunker
from rag_core.chunking.clinical_roles import ROLES, role_of
from rag_core.models.encoders.tokens import WordTokenizer
from rag_core.parsing.outline import with_outline
from rag_core.types import Chunk, Document

DOCUMENT = UUID("00000000-0000-0000-0000-000000000001")
TRIAL = """# A Study of Keys in Locks

## Brief Summary
Keys are tried in locks.

## Eligibility
Everybody may apply.

Inclusion Criteria:

- Age over 18.
- A lock of their own.

EXCLUSION CRITERIA

- Prior keys.

## Outcome Measures
### Primary Outcome: opened locks
Locks that open.
### Secondary Outcome
Time to open.
"""


def split(text: str, tokens: int = 40) -> tuple[Chunk, ...]:
    return ClinicalChunker(WordTokenizer(), tokens, 0, 12).split(DOCUMENT, with_outline(Document(uri="x", text=text)))


def test_every_chunk_has_the_one_role_of_its_headings() -> None:
    roles = [(chunk.metadata["role"], chunk.text.splitlines()[-1]) for chunk in split(TRIAL)]
    assert roles == [
        ("brief_summary", "Keys are tried in locks."),
        ("eligibility", "Everybody may apply."),
        ("inclusion", "- A lock of their own."),
        ("exclusion", "- Prior keys."),
        ("outcomes", "Locks that open."),
        ("outcomes", "Time to open."),
    ]


def test_text_under_other_headings_has_the_role_other() -> None:
    assert [chunk.metadata["role"] for chunk in split("Text.\n\n# Notes\nMore of it.")] == ["other"]


def test_a_chunk_keeps_its_section() -> None:
    [chunk] = [chunk for chunk in split(TRIAL) if chunk.metadata["role"] == "inclusion"]
    assert chunk.metadata["section"] == "A Study of Keys in Locks > Eligibility > Inclusion Criteria"


def test_small_sections_of_different_roles_stay_apart_where_others_are_merged() -> None:
    chunks = split("# L\n## Warnings\nx.\n## Contraindications\ny.\n## Indications\nz.\n")
    assert [chunk.metadata["role"] for chunk in chunks] == ["warnings", "contraindications", "indications"]


@pytest.mark.parametrize(
    ("path", "role"),
    [
        (("1 INDICATIONS AND USAGE",), "indications"),
        (("4 CONTRAINDICATIONS",), "contraindications"),
        (("5 WARNINGS AND PRECAUTIONS", "5.1 Hepatotoxicity"), "warnings"),
        (("2 DOSAGE AND ADMINISTRATION",), "dosage"),
        (("3 DOSAGE FORMS AND STRENGTHS",), "dosage_forms"),
        (("6 ADVERSE REACTIONS", "6.1 Clinical Trials Experience"), "adverse_events"),
        (("10 OVERDOSAGE",), "overdosage"),
        (("Eligibility", "Inclusion Criteria:"), "inclusion"),
        (("Arms and Interventions",), "arms"),
        (("Primary Outcome - opened locks",), "outcomes"),
        (("Treatment of locks",), "other"),
        (("Interventional procedures",), "other"),
        ((), "other"),
    ],
)
def test_the_innermost_heading_with_a_role_decides(path: tuple[str, ...], role: str) -> None:
    assert role_of(path) == role


def test_no_heading_opens_two_roles() -> None:
    headings = [heading for names in ROLES.values() for heading in names]
    assert len(headings) == len(set(headings))
    assert all(heading == heading.lower().strip() for heading in headings)


def test_columns_of_blanks_are_not_a_label_and_do_not_take_long() -> None:
    lines = "\n".join(f"Dose{' ' * 20_000}{n} mg" for n in range(20))
    chunker = ClinicalChunker(WordTokenizer(), tokens=50, overlap=0, prefix_tokens=8)
    began = time.process_time()
    chunks = chunker.split(
        DOCUMENT, with_outline(Document(uri="file:///dose.md", text=lines, media_type="text/markdown"))
    )
    assert {chunk.metadata["role"] for chunk in chunks} == {"other"}
    assert time.process_time() - began < 5
