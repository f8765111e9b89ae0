import pytest
from fakes.answering import citation, passage
from fakes.judging import cite_markers

from rag_core.answering.citing.citations import cite
from rag_core.answering.judging.statements import Statement, find_statements, has_words
from rag_core.types import Answer, CitationStyle

PASSAGES = [passage(1, "Keys are of steel."), passage(2, "Doors are of oak.")]


def statements_of(answer: Answer) -> list[Statement]:
    return find_statements(answer, PASSAGES)


def read(answer: Answer) -> list[tuple[str, list[int]]]:
    return [(statement.text, [passage.n for passage in statement.passages]) for statement in statements_of(answer)]


def test_a_sentence_is_judged_by_the_passages_that_it_cites_and_by_all_if_it_cites_none() -> None:
    answer = cite_markers("Keys are of steel [1]. Doors are of oak [2][1]. All of them last.")
    assert read(answer) == [
        ("Keys are of steel", [1]),
        ("Doors are of oak", [1, 2]),
        ("All of them last.", [1, 2]),
    ]


def test_claims_have_the_spans_of_the_citations() -> None:
    answer = cite_markers("Keys are of steel [1]. Doors are of oak. [2] All of them last.")
    spans = [(statement.start, statement.end) for statement in statements_of(answer)]
    assert spans[:2] == [citation.claim for citation in answer.citations]
    assert [answer.text[start:end] for start, end in spans] == [
        "Keys are of steel",
        "Doors are of oak.",
        "All of them last.",
    ]


def test_text_after_a_marker_does_not_escape() -> None:
    answer = cite_markers("Keys are of steel [1] and doors of glass.")
    assert read(answer) == [("Keys are of steel", [1]), ("Keys are of steel and doors of glass.", [1])]


def test_headings_code_and_rows_of_dashes_state_nothing() -> None:
    text = "# Keys and doors\n\nKeys are of steel.\n\n```\nopen(door)\n```\n\n| what | of |\n|---|---|\n| door | oak |"
    assert [statement.text for statement in statements_of(Answer(text=text))] == [
        "Keys are of steel.",
        "what | of",
        "door | oak",
    ]


def test_bullets_and_their_numbers_are_not_part_of_a_claim() -> None:
    answer = Answer(text="- Keys are\n  of steel.\n2. Doors are of oak.")
    assert [statement.text for statement in statements_of(answer)] == ["Keys are of steel.", "Doors are of oak."]


def test_text_like_a_bullet_inside_a_sentence_stays() -> None:
    answer = Answer(text="Water - H2O (see 1) boils - at 100 °C.")
    assert [statement.text for statement in statements_of(answer)] == ["Water - H2O (see 1) boils - at 100 °C."]


def test_a_marker_before_any_word_claims_nothing() -> None:
    answer = Answer(text="[1] Keys are of steel.", citations=(citation(1, claim=(0, 0), span=(0, 3)),))
    assert read(answer) == [("Keys are of steel.", [1, 2])]


def test_an_answer_without_words_states_nothing() -> None:
    assert statements_of(Answer(text="")) == statements_of(Answer(text=" ... ")) == []


def test_a_citation_of_a_missing_passage_counts_as_none() -> None:
    assert read(cite_markers("Keys are of steel [9].")) == [("Keys are of steel", [1, 2])]


@pytest.mark.parametrize("style", ["inline", "footnote", "endnote"])
def test_lists_of_sources_state_nothing(style: CitationStyle) -> None:
    answer = cite("Keys are of steel [1]. Doors are of oak [2].", PASSAGES, "default", style)
    assert read(answer) == [("Keys are of steel", [1]), ("Doors are of oak", [2])]
    assert {(statement.start, statement.end) for statement in statements_of(answer)} == {
        citation.claim for citation in answer.citations
    }


@pytest.mark.parametrize(
    "listed",
    [
        "Sources\n1. Doors are of glass.\n2. Keys are of wood.",
        "Sources\n1. Document 1 - file:///1.md\n3. Document 3",
        "[^1]: Doors are of glass.",
        "[^1]: Document 1\n[^9]: Document 9",
    ],
)
def test_a_list_of_sources_with_more_than_is_cited_states_it(listed: str) -> None:
    answer = cite_markers(f"Keys are of steel [1].\n\n{listed}")
    assert len(statements_of(answer)) > 1


def test_a_list_of_sources_amid_an_answer_states_what_it_lists() -> None:
    answer = cite_markers("Keys are of steel [1].\n\nSources\n1. Document 1 - file:///1.md\n\nDoors are of oak [2].")
    assert "Document 1 - file:///1.md" in [text for text, _ in read(answer)]


def test_a_source_whose_title_has_lost_a_link_states_nothing() -> None:
    named = passage(1, "Keys are of steel.", title="Keys, see https://evil.example/a")
    answer = cite("Keys are of steel [1].", [named], "default", "endnote")
    assert "(link removed)" in answer.text
    assert [statement.text for statement in find_statements(answer, [named])] == ["Keys are of steel"]


@pytest.mark.parametrize(
    ("text", "has"),
    [("# Keys", True), ("```\nopen(door)\n```", True), ("2. ", False), (" ... ", False), ("Keys [1].", True)],
)
def test_headings_and_code_have_words_and_numbers_of_lists_have_none(text: str, has: bool) -> None:
    assert has_words(Answer(text=text)) is has


def test_the_number_of_a_list_states_nothing_where_its_sentence_is_still_to_come() -> None:
    assert statements_of(Answer(text="2. ")) == []
    assert [statement.text for statement in statements_of(Answer(text="42."))] == ["42."]


def test_markers_and_the_list_of_sources_are_not_words() -> None:
    answer = Answer(text="[^1]\n\n[^1]: Document 1", citations=(citation(1, claim=(0, 0), span=(0, 4)),))
    assert not has_words(answer)
