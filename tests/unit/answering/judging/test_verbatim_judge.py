import asyncio
from dataclasses import replace

import pytest
from fakes.answering import passage
from fakes.judging import cite_markers, quoting_answer

from rag_core.answering.judging.verbatim import VerbatimJudge
from rag_core.types import Answer, Grade

KEYS = passage(
    1, "# Keys\n\n- Keys are rotated\n  monthly [3]. Ask the owner.\n\n| what | of |\n| door | oak |", start=100
)

QUOTED = [("Ask the owner.", "Ask the owner."), ("| door | oak |", "door | oak")]


def grade(answer: Answer) -> Grade:
    verdict = asyncio.run(VerbatimJudge().judge(answer, [KEYS]))
    assert verdict.method == "verbatim"
    return verdict.grade


@pytest.mark.parametrize(
    ("quote", "text"),
    [
        ("Ask the owner.", "Ask the owner. [1]"),
        ("- Keys are rotated\n  monthly [3].", "Keys are rotated monthly (3). [1]"),
        ("| door | oak |", "door | oak [1]"),
    ],
)
def test_a_quote_is_supported_whatever_its_white_space_marks_and_markers_became(quote: str, text: str) -> None:
    assert grade(quoting_answer(quote, KEYS, text)) == "supported"


def test_a_backtick_can_have_become_an_apostrophe() -> None:
    source = passage(1, "Press ` to quote.")
    answer = quoting_answer("Press ` to quote.", source, "Press ' to quote. [1]")
    assert asyncio.run(VerbatimJudge().judge(answer, [source])).grade == "supported"


def test_a_claim_can_be_of_several_quotes_and_has_no_other_word() -> None:
    first, second = (quoting_answer(quote, KEYS, f"{text} [1]") for quote, text in QUOTED)
    text = f"{first.text} {second.text}"
    (one,), (other,) = first.citations, second.citations
    both = replace(other, claim=(0, len(text) - 4), spans=((len(text) - 3, len(text)),))
    assert grade(Answer(text=text, citations=(one, both))) == "supported"
    assert (
        grade(Answer(text=text, citations=(one, replace(both, quote=one.quote, start=one.start, end=one.end))))
        == "partial"
    )


def test_a_claim_that_says_something_else_than_its_quote_is_unsupported() -> None:
    assert grade(quoting_answer("Ask the owner.", KEYS, "Ask no owner. [1]")) == "unsupported"


def test_a_quote_with_the_wrong_place_is_unsupported() -> None:
    right = quoting_answer("Ask the owner.", KEYS, "Ask the owner. [1]")
    (citation,) = right.citations
    for shifted in (citation.start + 1, citation.start - KEYS.start, -citation.start):
        moved = replace(citation, start=shifted, end=shifted + len(citation.quote))
        assert grade(replace(right, citations=(moved,))) == "unsupported"


def test_a_sentence_without_a_citation_is_unsupported() -> None:
    assert grade(cite_markers("Ask the owner.")) == "unsupported"
