import pytest

from rag_core.storage.graph.extraction import MOST_ENTITIES, extracted, name_of, phrases


def names(text: str) -> set[str]:
    return set(extracted(text).times)


@pytest.mark.parametrize(
    ("text", "found"),
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
        ("", set()),
    ],
)
def test_what_is_written_as_a_name_is_an_entity(text: str, found: set[str]) -> None:
    assert names(text) == found


def test_a_capital_that_only_begins_a_sentence_makes_no_name() -> None:
    assert names("Keys are rotated. Locks are oiled by When.") == set()


def test_what_is_a_name_elsewhere_is_one_at_the_beginning_of_a_sentence() -> None:
    assert extracted("Babbage built it. It was built by Babbage. Babbage's wife knew.").times == {"babbage": 3}


def test_names_are_compared_without_case_genitive_and_spaces() -> None:
    assert name_of("Ada  LOVELACE’s") == name_of("ada lovelace's") == name_of("Ada\tLovelace") == "ada lovelace"  # noqa: RUF001


def test_the_label_is_as_it_was_first_written() -> None:
    assert extracted("we use PGVECTOR here. The PgVector there.").labels == {"pgvector": "PGVECTOR"}


def test_a_sentence_relates_more_than_a_chunk() -> None:
    graph = extracted("we saw Ada with Charles. then we saw Mary.")
    assert graph.weights == {("ada", "charles"): 1.2, ("ada", "mary"): 0.2, ("charles", "mary"): 0.2}


def test_what_stands_together_twice_is_related_twice() -> None:
    assert extracted("we saw Ada with Bob. we saw Bob with Ada.").weights == {("ada", "bob"): 2.2}


def test_of_many_entities_the_most_frequent_are_taken() -> None:
    many = ", ".join(f"x{n}" for n in range(100))
    graph = extracted(f"{many}. x99, x99, x98.")
    assert len(graph.times) == MOST_ENTITIES
    assert {"x99", "x98"} <= graph.times.keys()
    assert max(len(pair) for pair in graph.weights) == 2


def test_a_heading_that_is_a_sentence_is_no_name() -> None:
    assert names("see All The Many Words Of A Long Heading Here") == set()


def test_a_question_is_about_any_run_of_its_words() -> None:
    asked = phrases("What did ada lovelace's friend do?")
    assert {"ada", "ada lovelace", "ada lovelace friend"} <= set(asked)
    assert "what" not in asked
    assert max(len(phrase.split()) for phrase in asked) == 5
    assert phrases("?") == []
