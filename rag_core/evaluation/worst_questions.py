"""The questions of a run that went worst, with the place where each was lost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rag_core.evaluation.finished_run import FinishedQuestion, FinishedRun
from rag_core.evaluation.stages import FINAL

MAX_WORST = 10
MAX_ERRORS = 3
"""The number of questions that ended with an error, which are shown first; their errors are often the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstQuestion:
    """A question that failed. `ranks` are those of its first relevant document, by stage in the order of the flow.

    `expected` holds the references, or else the relevant documents. `reply` is empty if nothing was answered.
    `was_read`: the generator read a relevant passage; None if that is unknown.
    """

    id: str
    text: str
    label: str
    detail: str = ""
    expected: tuple[str, ...] = ()
    expects_refusal: bool = False
    reply: str = ""
    ranks: Mapping[str, int | None]
    final_rank: int | None = None
    was_read: bool | None = None


def find_worst(run: FinishedRun) -> list[WorstQuestion]:
    """Questions with errors, and the worst of the failure waterfall; without one, those with the lowest scores."""
    questions = {question.id: question for question in run.questions}
    if waterfall := run.report.get("waterfall"):
        errors = {id: question for id, question in questions.items() if question.is_failed}
        worst = [
            _describe(question, label=find_loss(question), ranks=question.ranks)
            for question in list(errors.values())[:MAX_ERRORS]
        ]
        worst += [
            _describe(
                questions[example["question"]],
                label=example["label"],
                detail=example["detail"],
                ranks=example["ranks"] or questions[example["question"]].ranks,
                was_read=example["passages"],
            )
            for example in waterfall["examples"]
            if example["question"] in questions.keys() - errors.keys()
        ]
        return worst[:MAX_WORST]
    failed = sorted((question for question in run.questions if question.score < 1), key=lambda failed: failed.score)
    return [_describe(question, label=find_loss(question), ranks=question.ranks) for question in failed[:MAX_WORST]]


def find_loss(question: FinishedQuestion) -> str:
    """The reason for a low score in a few words, as far as it is known without the failure waterfall."""
    answer = question.answer
    if question.is_failed:
        return "failed"
    if answer and answer.is_refusal and answer.answerable is not False:
        return "refused"
    if answer and not answer.is_refusal and answer.answerable is False:
        return "answered an unanswerable question"
    places = [place for place in question.lost.values() if place]
    if places and len(places) == len(question.lost):
        return f"lost at {places[0]}"
    if answer and answer.score is not None and answer.score < 1:
        return "differs from the reference"
    return f"partly lost at {places[0]}" if places else "low rank"


def _describe(
    question: FinishedQuestion,
    *,
    label: str,
    ranks: Mapping[str, int | None],
    detail: str = "",
    was_read: bool | None = None,
) -> WorstQuestion:
    answer = question.answer
    references: Sequence[str] = answer.references if answer else ()
    return WorstQuestion(
        id=question.id,
        text=question.text,
        label=label,
        detail=detail or question.error or (answer.error if answer else ""),
        expected=tuple(references or sorted(question.relevant)),
        expects_refusal=bool(answer and answer.answerable is False),
        reply=answer.text if answer else "",
        ranks=ranks,
        final_rank=question.ranks.get(FINAL),
        was_read=was_read,
    )
