"""The label of a failed question, from what is known about it."""

from typing import Any

import pytest

from rag_core.evaluation.answer_measures import measure_answer
from rag_core.evaluation.answer_traces import AnswerTrace, PassageText, StatedSentence
from rag_core.evaluation.failures import LABELS, label_failure
from rag_core.evaluation.gold import find_answer_spans, has_gold_passage
from rag_core.evaluation.gold_search import GoldSearch
from rag_core.evaluation.outcomes import Outcome
from rag_core.evaluation.question import Question
from rag_core.evaluation.spans import Span
from rag_core.evaluation.waterfall import build_waterfall, waterfall_to_json
from rag_core.retrieval.why import Verdict

QUESTION = Question(
    id="q1", text="When do the gates open?", grades={"gates": 1}, references=("at nine",), answerable=True
)
UNANSWERABLE = Question(id="q2", text="Who built them?", grades={}, answerable=False)
PASSAGE = PassageText(uri="gates", text="The gates open at nine. The crane is red.")


def answer_trace(text: str = "The gates open at nine.", question: Question = QUESTION, **trace: Any) -> AnswerTrace:
    sentences = (StatedSentence(text=text, quotes=(text,)),)
    values = {"answer": text, "sentences": sentences, "passages": (PASSAGE,), "grade": "supported", **trace}
    return AnswerTrace(question=question.id, seconds=0.1, **values)


def outcome(
    trace: AnswerTrace, question: Question = QUESTION, reached: bool | None = True, cites_relevant: bool = True
) -> Outcome:
    answer = measure_answer(question, trace)
    return Outcome(question=question, reached=reached, answer=answer, cites_relevant=cites_relevant)


def search_with_loss(step: str, **changes: Any) -> GoldSearch:
    return GoldSearch(question="q1", loss=Verdict(step=step, reason="the reason"), **changes)


WRONG = answer_trace("The crane is red.")
REFUSED = answer_trace("", finish="abstained", sentences=(), grade="unchecked", judge_skipped="there is no answer")
SEARCHED = Outcome(question=QUESTION, reached=False)
UNREACHED = outcome(WRONG, reached=False)


def test_a_right_answer_from_a_relevant_passage_is_not_a_failure() -> None:
    assert not outcome(answer_trace()).is_failure
    assert not Outcome(question=QUESTION, reached=True).is_failure
    assert not outcome(answer_trace(), reached=False, cites_relevant=False).is_failure


@pytest.mark.parametrize("failed", [SEARCHED, UNREACHED])
@pytest.mark.parametrize(
    ("search", "label"),
    [
        (None, "not_indexed"),
        (search_with_loss("deleted"), "not_indexed"),
        (search_with_loss("ingestion"), "not_indexed"),
        (search_with_loss("span"), "span_lost"),
        (search_with_loss("depth", raw_rank=3), "rewrite_error"),
        (search_with_loss("leg"), "pool_miss"),
        (search_with_loss("depth"), "pool_miss"),
        (search_with_loss("k", part="pool"), "pool_miss"),
        (search_with_loss("k", part="fusion"), "fusion_loss"),
        (search_with_loss("rerank_depth", part="fusion"), "fusion_loss"),
        (search_with_loss("rerank", part="rerank"), "rerank_loss"),
        (search_with_loss("max_chunks_per_document", part="rerank"), "rerank_loss"),
    ],
)
def test_a_passage_that_never_reached_the_prompt_was_lost_by_the_search(
    failed: Outcome, search: GoldSearch | None, label: str
) -> None:
    assert failed.is_failure
    assert label_failure(failed, search).label == label


def test_a_hit_that_no_passage_contains_was_cut_by_the_budget() -> None:
    assert label_failure(UNREACHED, search_with_loss("found")).label == "budget_cut"


@pytest.mark.parametrize(
    ("failed", "label"),
    [
        (outcome(WRONG), "unused_context"),
        (outcome(answer_trace("Bananas fly.", grade="unsupported")), "unsupported_claim"),
        (
            outcome(answer_trace("They open at nine, sing in tune and travel far.", grade="unsupported")),
            "unsupported_claim",
        ),
        (outcome(answer_trace(), cites_relevant=False), "wrong_citation"),
        (outcome(answer_trace(grade="unsupported"), cites_relevant=False), "wrong_citation"),
        (outcome(REFUSED), "over_abstain"),
        (outcome(answer_trace(question=UNANSWERABLE), UNANSWERABLE, reached=None), "under_abstain"),
        (outcome(answer_trace(grade="unchecked", judge_error="no JSON")), "judge_error"),
        (outcome(answer_trace(grade="unsupported")), "judge_error"),
    ],
)
def test_a_passage_in_the_prompt_was_lost_by_the_answer(failed: Outcome, label: str) -> None:
    assert failed.is_failure
    assert label_failure(failed, None).label == label


def test_a_refused_question_whose_passage_is_missing_was_lost_by_the_search() -> None:
    assert label_failure(outcome(REFUSED, reached=False), search_with_loss("depth")).label == "pool_miss"


def test_a_refusal_is_right_if_the_documents_do_not_answer_or_might_not() -> None:
    unknown = Question(id="q3", text="And then?", grades={}, references=("at nine",))
    assert not outcome(REFUSED, UNANSWERABLE, reached=None).is_failure
    assert not outcome(REFUSED, unknown, reached=None).is_failure


def test_documents_about_an_unanswerable_question_need_not_be_read() -> None:
    graded = Question(id="q4", text="Who built them?", grades={"gates": 1}, answerable=False)
    reached = has_gold_passage(graded, [("crane", "The crane is red.")], {})
    assert reached is None
    assert not outcome(REFUSED, graded, reached=reached).is_failure
    assert label_failure(outcome(answer_trace(question=graded), graded, reached=reached), None).label == "under_abstain"


def test_the_waterfall_is_in_the_order_of_the_labels_and_shows_the_worst_first() -> None:
    failed = [outcome(answer_trace(), cites_relevant=False), outcome(WRONG), outcome(answer_trace())]
    waterfall = waterfall_to_json(
        build_waterfall([*failed, UNREACHED], {"q1": search_with_loss("depth", ranks={"dense": 0})})
    )
    assert (waterfall["questions"], waterfall["failed"]) == (4, 3)
    assert list(waterfall["labels"].items()) == [("pool_miss", 1), ("unused_context", 1), ("wrong_citation", 1)]
    assert [example["label"] for example in waterfall["examples"]] == ["unused_context", "pool_miss", "wrong_citation"]
    assert waterfall["examples"][1] == {
        "question": "q1",
        "text": "When do the gates open?",
        "label": "pool_miss",
        "detail": "the reason",
        "ranks": {"dense": None},
        "passages": False,
    }
    assert list(waterfall["labels"]) == [label for label in LABELS if label in waterfall["labels"]]


def test_the_answer_is_the_shortest_span_or_reference_that_its_document_contains() -> None:
    texts = {"gates": "At noon? No: at nine, sharp at nine."}
    question = Question(id="q", text="", grades={}, spans=(Span(document="gates", start=3, end=7),))
    assert find_answer_spans(question, texts) == {"gates": Span(document="gates", start=3, end=7)}
    implied = Question(id="q", text="", grades={"gates": 1}, references=("sharp at nine", "nine", "o"))
    assert find_answer_spans(implied, texts) == {"gates": Span(document="gates", start=16, end=20)}
    assert find_answer_spans(implied, {}) == {}


def test_a_gold_passage_contains_the_words_of_the_answer_if_they_are_known() -> None:
    passages = [("gates", "The crane is red."), ("cranes", "It opens at nine.")]
    assert has_gold_passage(QUESTION, passages, {"gates": "at nine"}) is False
    assert has_gold_passage(QUESTION, passages, {}) is True
    assert has_gold_passage(UNANSWERABLE, passages, {}) is None
