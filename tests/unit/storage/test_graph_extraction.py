import unicodedata

import pytest

from rag_core.storage.graph.extraction import (
    MAX_CHUNK_ENTITIES,
    MAX_FULLY_RELATED,
    MAX_NAME_CHARS,
    MAX_NEAREST,
    extract_graph,
    normalize_name,
    question_phrases,
)


def names(text: str) -> set[str]:
    return set(extract_graph(text).counts)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The engine of Charles Babbage stood still.", {"charles babbage"}),
        ("It is told by the Royal Society of London today.", {"royal society of london"}),
        ("Ada Lovelace wrote to Charles Babbage.", {"ada lovelace", "charles babbage"}),
        ("This was told to Ada, Charles and Mary.", {"ada", "charles", "mary"}),
        ("keys are rotated by NASA every week", {"nasa"}),
        ("set max_tokens, use bge-m3 with halfVec", {"max_tokens", "bge-m3", "halfvec"}),
        ('it is called a "zero trust" network, or `rag why`', {"zero trust", "rag why"}),
        ("we went to Zürich in Österreich", {"zürich", "österreich"}),
        ("in 1936 there were 10mg of it, e.g. more", set()),
        ("it is told by the WHO, as IT and OR are", {"who", "it", "or"}),
        ("THE WHO IS OUT", {"out"}),
        ("we left Los Angeles, El Salvador and La Paz", {"los angeles", "el salvador", "la paz"}),
        ("- Die Pumpe läuft\nHinweis: Die Pumpe steht", {"pumpe"}),
        ("we met Dr. Smith in St. Louis", {"dr smith", "st louis"}),
        ("a bill of the U.S. Congress, by John F. Kennedy", {"u.s congress", "john f kennedy"}),
        ("they left the U.S. The Senate stayed", {"u.s", "senate"}),
        ("so did I. Keys are rotated", set()),
        (unicodedata.normalize("NFD", "we went to Zürich in Österreich"), {"zürich", "österreich"}),
        ("the mean is X\u0304Y here", {"x\u0304y"}),
        ("", set()),
    ],
)
def test_text_written_as_a_name_is_an_entity(text: str, expected: set[str]) -> None:
    assert names(text) == expected


def test_a_capital_that_only_begins_a_sentence_makes_no_name() -> None:
    assert names("Keys are rotated. Locks are oiled by When.") == set()


def test_a_name_elsewhere_is_a_name_at_the_beginning_of_a_sentence() -> None:
    assert extract_graph("Babbage built it. It was built by Babbage. Babbage's wife knew.").counts == {"babbage": 3}


def test_names_are_compared_without_case_genitive_and_spaces() -> None:
    names = ("Ada  LOVELACE’s", "ada lovelace's", "Ada\tLovelace")  # noqa: RUF001
    assert {normalize_name(name) for name in names} == {"ada lovelace"}


def test_the_label_is_as_it_was_first_written() -> None:
    assert extract_graph("we use PGVECTOR here. The PgVector there.").labels == {"pgvector": "PGVECTOR"}


def test_a_sentence_relates_more_than_a_chunk() -> None:
    graph = extract_graph("we saw Ada with Charles. then we saw Mary.")
    assert graph.weights == {("ada", "charles"): 1.2, ("ada", "mary"): 0.2, ("charles", "mary"): 0.2}


def test_up_to_some_number_of_entities_each_is_related_with_each() -> None:
    graph = extract_graph(", ".join(f"x{n}" for n in range(MAX_FULLY_RELATED)))
    assert len(graph.weights) == MAX_FULLY_RELATED * (MAX_FULLY_RELATED - 1) / 2


def test_names_of_a_table_are_related_with_the_nearest_ones() -> None:
    graph = extract_graph(", ".join(f"x{n:02}" for n in range(MAX_CHUNK_ENTITIES)))
    assert len(graph.weights) <= MAX_CHUNK_ENTITIES * MAX_NEAREST
    assert {pair for pair in graph.weights if "x00" in pair} == {("x00", f"x{n:02}") for n in range(1, MAX_NEAREST + 1)}


def test_names_of_one_sentence_in_a_table_are_nearest() -> None:
    rows = "\n".join(f"x{n:02} y{n:02}" for n in range(MAX_CHUNK_ENTITIES // 2))
    weights = extract_graph(f"{rows}\nx00 with y19").weights
    assert weights["x00", "y00"] == weights["x00", "y19"] == 1.2
    assert ("x00", "y10") not in weights


def test_what_no_index_accepts_is_not_an_entity() -> None:
    assert names(f"we saw {'x1' * 2000} with Ada") == {"ada"}
    assert names(f'we saw "{chr(0xFDFA) * 20}" with Ada') == {"ada"}  # 360 characters once they are compared
    assert names(f"we saw {'x' * (MAX_NAME_CHARS - 1)}1 there") == {"x" * (MAX_NAME_CHARS - 1) + "1"}


def test_what_has_no_letters_when_it_is_compared_is_not_an_entity() -> None:
    assert names('they wrote "\ufc5e \ufc5f" to Ada') == {"ada"}


def test_entities_that_occur_together_twice_are_related_twice() -> None:
    assert extract_graph("we saw Ada with Bob. we saw Bob with Ada.").weights == {("ada", "bob"): 2.2}


def test_the_most_frequent_of_many_entities_are_used() -> None:
    many = ", ".join(f"x{n}" for n in range(100))
    graph = extract_graph(f"{many}. x99, x99, x98.")
    assert len(graph.counts) == MAX_CHUNK_ENTITIES
    assert {"x99", "x98"} <= graph.counts.keys()
    assert max(len(pair) for pair in graph.weights) == 2


def test_a_heading_that_is_a_sentence_is_not_a_name() -> None:
    assert names("see All The Many Words Of A Long Heading Here") == set()


def test_a_question_is_about_any_run_of_its_words() -> None:
    phrases = question_phrases("What did ada lovelace's friend do?")
    assert {"ada", "ada lovelace", "ada lovelace friend"} <= set(phrases)
    assert "what" not in phrases
    assert max(len(phrase.split()) for phrase in phrases) == 5
    assert question_phrases("?") == []


def test_a_function_word_alone_is_an_acronym_where_the_question_writes_it_so() -> None:
    assert {"who", "who rules"} <= set(question_phrases("what are WHO rules?"))
    assert "who" not in question_phrases("who rules?")


def test_a_question_is_compared_as_texts_are() -> None:
    assert "los angeles" in question_phrases("Where is Los Angeles?")
    assert "dr smith" in question_phrases("Where is Dr. Smith?")
    assert "zürich" in question_phrases(unicodedata.normalize("NFD", "Where is Zürich?"))
    assert {"acme"} == names("we use Acme™ here") == set(question_phrases("Acme™"))
