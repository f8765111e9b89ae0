import asyncio
from math import log

import pytest

from rag_core.retrieval.rerankers.lexical import LexicalReranker


def scores(question: str, texts: list[str], language: str = "en") -> list[float]:
    return asyncio.run(LexicalReranker(language).score(question, texts))


def test_bm25_by_hand() -> None:
    """Two texts of 2 and 4 terms, mean 3; "key" occurs once in the first and twice in the second."""
    first, second = scores("keys", ["key oak", "key key door house"])
    idf = log(1 + 0.5 / 2.5)
    assert first == pytest.approx(idf * 2.5 / (1 + 1.5 * (0.25 + 0.75 * 2 / 3)))
    assert second == pytest.approx(idf * 2 * 2.5 / (2 + 1.5 * (0.25 + 0.75 * 4 / 3)))


def test_a_word_of_most_candidates_still_adds_to_their_scores() -> None:
    having, lacking = scores("keys", ["the keys turn", "keys", "keys and doors", "doors"])[2:]
    assert having > lacking == 0


def test_words_match_by_their_stems_and_stop_words_do_not_match() -> None:
    assert scores("rotating the key", ["the doors", "rotate keys"])[0] == 0
    assert scores("rotating the key", ["the doors", "rotate keys"])[1] > 0


def test_the_language_selects_the_stemmer() -> None:
    assert scores("Häuser", ["Hauses"], language="de")[0] > 0
    assert scores("Häuser", ["Hauses"], language="en") == [0]


def test_texts_without_terms_score_0() -> None:
    assert scores("keys", ["", "?", "the"]) == [0, 0, 0]
