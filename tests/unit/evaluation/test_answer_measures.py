"""The measures of answers, for one question and for all."""

from dataclasses import replace

import pytest

from rag_core.evaluation.answer_measures import MeasuredAnswer, measure_answer
from rag_core.evaluation.answer_report import answers_to_json, evaluate_answers
from rag_core.evaluation.answer_traces import AnswerTrace, PassageText, StatedSentence
from rag_core.evaluation.answers import (
    citation_precision,
    citation_recall,
    contains_reference,
    exact_match,
    lexical_support,
    rouge_l,
)
from rag_core.evaluation.question import Question

QUESTION = Question(id="q1", text="When?", grades={}, references=("at nine",), answerable=True)
ANSWERED = AnswerTrace(
    question="q1",
    seconds=1.0,
    answer="It opens at nine [1].",
    sentences=(StatedSentence(text="It opens at nine.", quotes=("It opens at nine.",)),),
    passages=(PassageText(uri="file:///d1.md", text="The sluice. It opens at nine."),),
    grade="supported",
    score=0.9,
)
REFUSED = AnswerTrace(question="q1", seconds=1.0, answer="The sources do not answer this.", finish="abstained")
FAILED = AnswerTrace(question="q1", seconds=1.0, error="GenerationError: no")


def test_exact_match_and_containment_read_words() -> None:
    assert exact_match("The nine!", ["ten", "nine"]) == 1.0
    assert exact_match("at nine", ["nine"]) == 0.0
    assert contains_reference("It opens at nine.", ["nine"]) == 1.0
    assert contains_reference("It opens at nineteen.", ["nine"]) == 0.0


def test_rouge_l_is_the_f1_of_the_longest_common_subsequence() -> None:
    # Lin 2004, section 3: "police killed the gunman" and two candidates, without articles as in token F1
    assert rouge_l("police kill the gunman", ["police killed the gunman"]) == pytest.approx(2 / 3)
    assert rouge_l("the gunman kill police", ["police killed the gunman"]) == pytest.approx(1 / 3)
    assert rouge_l("", ["red"]) == rouge_l("red", []) == 0.0


def test_citations_are_precise_alone_and_recalled_together() -> None:
    sentences = [("one two", ("one", "two")), ("three", ())]
    assert citation_recall(sentences) == 0.5
    assert citation_precision(sentences) == 0.5
    assert citation_recall([]) == citation_precision([]) == 0.0
    assert lexical_support("one two three four", ["three two", "one"]) == 0.75


def test_a_right_answer_has_all_measures() -> None:
    assert measure_answer(QUESTION, ANSWERED).measures == {
        "exact_match": 0.0,
        "token_f1": pytest.approx(2 * 2 / 6),
        "rouge_l": pytest.approx(2 * 2 / 6),
        "contains_reference": 1.0,
        "abstention": 1.0,
        "lexical_support": 1.0,
        "citation_precision": 1.0,
        "citation_recall": 1.0,
        "judge_score": 0.9,
        "judge_supported": 1.0,
    }


def test_a_refusal_scores_zero_words_and_is_right_only_if_nothing_answers() -> None:
    refused = measure_answer(QUESTION, REFUSED)
    assert refused.measures == {
        "exact_match": 0.0,
        "token_f1": 0.0,
        "rouge_l": 0.0,
        "contains_reference": 0.0,
        "abstention": 0.0,
    }
    assert measure_answer(replace(QUESTION, answerable=False), REFUSED).measures == {"abstention": 1.0}
    assert measure_answer(Question(id="q1", text="?", grades={}), REFUSED).measures == {}


def test_an_unchecked_answer_is_a_failure_of_the_judge_unless_there_is_none() -> None:
    unchecked = measure_answer(QUESTION, replace(ANSWERED, grade="unchecked", judge_error="JudgeError: garbage"))
    assert unchecked.failures == {"judge_score": "JudgeError: garbage", "judge_supported": "JudgeError: garbage"}
    skipped = measure_answer(QUESTION, replace(ANSWERED, grade="unchecked", judge_skipped="guard.mode is off"))
    assert skipped.failures == {}


def test_a_failed_question_fails_every_measure_and_lowers_the_coverage() -> None:
    answers = [*[measure_answer(QUESTION, ANSWERED)] * 19, measure_answer(QUESTION, FAILED)]
    evaluation = evaluate_answers(answers)
    assert {summary.coverage for summary in evaluation.measures.values()} == {0.95}
    assert evaluation.coverage == 0.95
    assert evaluation.is_valid
    assert not evaluate_answers(answers[1:]).is_valid
    assert evaluation.replies == {"answerable": {"answer": 19, "failed": 1}}


def test_a_mean_that_nothing_was_computed_for_is_null() -> None:
    report = answers_to_json(evaluate_answers([measure_answer(QUESTION, FAILED)]))
    assert report["measures"]["token_f1"] == {
        "mean": None,
        "low": None,
        "high": None,
        "coverage": 0.0,
        "questions": 1,
    }
    assert report["valid"] is False
    assert {failure["reason"] for failure in report["failures"]} == {"GenerationError: no"}


def test_the_confidence_separates_answerable_questions_from_others() -> None:
    def measure(answerable: bool | None, confidence: float | None) -> MeasuredAnswer:
        question = replace(QUESTION, answerable=answerable)
        return measure_answer(question, replace(ANSWERED, confidence=confidence))

    answers = [measure(True, 0.9), measure(True, 0.4), measure(False, 0.5), measure(False, None), measure(None, 0.1)]
    evaluation = evaluate_answers(answers)
    assert evaluation.abstention_auroc is not None
    assert evaluation.abstention_auroc.mean == 0.75
    assert evaluate_answers(answers[:2]).abstention_auroc is None
    failed = measure_answer(replace(QUESTION, answerable=False), FAILED)
    assert evaluate_answers([*answers[:2], failed]).abstention_auroc is None
