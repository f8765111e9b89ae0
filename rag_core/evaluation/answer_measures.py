"""The measures of one answer that need no model besides the profile's judge.

A measure that does not apply to the question or to the reply is left out. One that applies and cannot be computed is a
failure with its reason.

    exact_match, token_f1, rouge_l, contains_reference   questions with references, unless they are unanswerable; a
                                                         refusal counts as 0
    lexical_support, citation_precision, citation_recall answers that are not refusals
    judge_score, judge_supported                         the same, if the profile has a judge
    abstention                                           questions that are known to be answerable, or not to be
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from rag_core.evaluation.answer_traces import AnswerTrace
from rag_core.evaluation.answers import (
    citation_precision,
    citation_recall,
    contains_reference,
    exact_match,
    lexical_support,
    rouge_l,
    token_f1,
)
from rag_core.evaluation.question import Question

Values: TypeAlias = Mapping[str, float]

REFERENCE_MEASURES: Mapping[str, Callable[[str, Sequence[str]], float]] = {
    "exact_match": exact_match,
    "token_f1": token_f1,
    "rouge_l": rouge_l,
    "contains_reference": contains_reference,
}
SUPPORT_MEASURES: Mapping[str, Callable[[AnswerTrace], float]] = {
    "lexical_support": lambda trace: lexical_support(trace.words, [passage.text for passage in trace.passages]),
    "citation_precision": lambda trace: citation_precision(_cited_sentences(trace)),
    "citation_recall": lambda trace: citation_recall(_cited_sentences(trace)),
}
JUDGE_SCORE, JUDGE_SUPPORTED = "judge_score", "judge_supported"
ABSTENTION = "abstention"
"""1 if a question was refused because the corpus does not answer it, or not refused because it does; else 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredAnswer:
    """A question with its answer. `failures` are the reasons of missing values, and `reasons` those of values."""

    question: Question
    trace: AnswerTrace
    measures: Values = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)


def measure_answer(question: Question, trace: AnswerTrace) -> MeasuredAnswer:
    if trace.error:
        return MeasuredAnswer(question=question, trace=trace, failures=_fail_all(question, trace.error))
    measures: dict[str, float] = {}
    failures: dict[str, str] = {}
    if _has_right_answer(question):
        for name, measure in REFERENCE_MEASURES.items():
            measures[name] = 0.0 if trace.is_refusal else measure(trace.words, question.references)
    if question.answerable is not None:
        measures[ABSTENTION] = float(trace.is_refusal != question.answerable)
    if not trace.is_refusal:
        measures |= {name: measure(trace) for name, measure in SUPPORT_MEASURES.items()}
        if trace.grade != "unchecked":
            measures |= {JUDGE_SCORE: trace.score, JUDGE_SUPPORTED: float(trace.grade == "supported")}
        elif not trace.judge_skipped:
            reason = trace.judge_error or "the judge graded no sentence"
            failures = dict.fromkeys([JUDGE_SCORE, JUDGE_SUPPORTED], reason)
    return MeasuredAnswer(question=question, trace=trace, measures=measures, failures=failures)


def _has_right_answer(question: Question) -> bool:
    return bool(question.references) and question.answerable is not False


def _fail_all(question: Question, reason: str) -> dict[str, str]:
    """All measures that apply, whatever the reply would have been, and those of an answer if one was expected."""
    names = [*REFERENCE_MEASURES] if _has_right_answer(question) else []
    names += [ABSTENTION] if question.answerable is not None else []
    names += [*SUPPORT_MEASURES, JUDGE_SCORE, JUDGE_SUPPORTED] if question.answerable is not False else []
    return dict.fromkeys(names, reason)


def _cited_sentences(trace: AnswerTrace) -> list[tuple[str, Sequence[str]]]:
    return [(sentence.text, sentence.quotes) for sentence in trace.sentences]
