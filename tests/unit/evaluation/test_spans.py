from uuid import UUID

import pytest

from rag_core.evaluation.spans import AnswerCharacters, Span, align_spans, answer_characters, span_measures
from rag_core.parsing.markup.markdown import MarkdownParser


def span(start: int, end: int, document: str = "d") -> Span:
    return Span(document=document, start=start, end=end)


A, B, C, ELSEWHERE = (UUID(int=n) for n in range(4))
CHUNKS = {A: span(0, 100), B: span(80, 180), C: span(180, 280), ELSEWHERE: span(80, 180, "e")}


def count_by_chunk(answer: AnswerCharacters) -> dict[UUID, int]:
    return {id: int(characters.sum()) for id, characters in answer.by_chunk.items()}


def test_a_chunk_is_relevant_if_it_overlaps_the_answer() -> None:
    assert count_by_chunk(answer_characters([span(90, 120)], CHUNKS)) == {A: 10, B: 30}
    assert count_by_chunk(answer_characters([span(100, 180)], CHUNKS)) == {B: 80}
    assert count_by_chunk(answer_characters([span(80, 90, "e")], CHUNKS)) == {ELSEWHERE: 10}


def test_a_character_of_two_spans_is_of_the_answer_once() -> None:
    answer = answer_characters([span(10, 30), span(20, 40), span(200, 205)], CHUNKS)
    assert (answer.length, count_by_chunk(answer)) == (35, {A: 30, C: 5})


def test_ranks_count_relevant_chunks_and_characters_what_they_bring() -> None:
    measured = span_measures([C, A, B], answer_characters([span(90, 120)], CHUNKS), CHUNKS, cutoffs=(1, 2, 3, 10))
    assert (measured["mrr"], measured["success@1"], measured["recall@2"], measured["recall@10"]) == (0.5, 0, 0.5, 1)
    assert [measured[f"char_recall@{k}"] for k in (1, 2, 3, 10)] == [0, 10 / 30, 1, 1]
    assert [measured[f"char_precision@{k}"] for k in (1, 2, 3, 10)] == [0, 10 / 200, 30 / 300, 30 / 300]


def test_recall_within_a_budget_cuts_the_chunk_that_exceeds_it() -> None:
    chunks = {A: span(0, 1000), B: span(1000, 2000)}
    answer = answer_characters([span(1000, 1048)], chunks, lost=48)
    measured = span_measures([A, B], answer, chunks)
    assert [measured[f"char_recall@{tokens}t"] for tokens in (256, 512)] == [24 / 96, 48 / 96]
    reordered = span_measures([B, A], answer, chunks)
    assert reordered["char_recall@256t"] == 48 / 96


def test_repetitions_in_overlapping_chunks_lower_the_intersection_over_union() -> None:
    wanted = answer_characters([span(80, 100)], CHUNKS)
    assert span_measures([A], wanted, CHUNKS, cutoffs=(5,))["char_iou@5"] == 20 / 100
    assert span_measures([A, B], wanted, CHUNKS, cutoffs=(5,))["char_iou@5"] == 20 / 200


def test_an_answer_that_was_not_stored_is_missed_and_not_left_out() -> None:
    half = span_measures([A], answer_characters([span(0, 10)], CHUNKS, lost=10), CHUNKS, cutoffs=(1,))
    assert (half["char_recall@1"], half["char_iou@1"], half["recall@1"]) == (0.5, 10 / 110, 1)
    nothing = span_measures([A], answer_characters([], CHUNKS, lost=10), CHUNKS, cutoffs=(1,))
    assert set(nothing.values()) == {0}


def test_without_hits_every_measure_is_zero() -> None:
    assert set(span_measures([], answer_characters([span(0, 10)], CHUNKS), CHUNKS).values()) == {0}


@pytest.mark.parametrize(
    ("words", "stored"),
    [
        ("opened at nine", "opened at nine"),
        ("by <b>the\r\ncrew</b>", "by the\ncrew"),
        ("<b>the\r\ncrew</b>", "the\ncrew"),
        ("crew", "crew"),
        ("Ünïcode <i>🚢</i>, last.", "Ünïcode 🚢, last."),
        ("rew</b>. Ün", "rew. Ün"),
    ],
)
def test_a_span_is_found_again_in_what_the_parser_made_of_its_text(words: str, stored: str) -> None:
    original = "The sluice, <i>the old one</i>, opened at nine\r\nby <b>the\r\ncrew</b>. Ünïcode <i>🚢</i>, last."
    text = MarkdownParser().parse("a.md", original.encode()).text
    start = original.index(words)
    (moved,) = align_spans([span(start, start + len(words))], original, text)
    assert text[moved.start : moved.end] == stored


def test_the_second_of_two_equal_words_stays_the_second() -> None:
    original, text = "nine <b>or</b> nine", "nine or nine"
    (moved,) = align_spans([span(15, 19)], original, text)
    assert (moved.start, moved.end) == (8, 12)


def test_a_span_of_which_nothing_was_stored_is_empty() -> None:
    (moved,) = align_spans([span(4, 17)], "one <!-- hidden -->two", "one two")
    assert moved.length == 0


def test_a_span_keeps_its_place_and_white_space_in_an_unchanged_text() -> None:
    assert align_spans([span(0, 4)], " one two", " one two") == [span(0, 4)]
