"""The measures of a run for kinds of questions, as far as the run can tell them apart."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from rag_core.evaluation.finished_run import NDCG, FinishedQuestion, FinishedRun
from rag_core.evaluation.report_page.charts import draw_interval
from rag_core.evaluation.report_page.section import Section, Table, format_interval, format_share
from rag_core.evaluation.significance import estimates

QUESTION_WORDS = ("who", "what", "when", "where", "why", "which", "how")
LENGTHS = ("up to 7 words", "8 to 12 words", "more than 12 words")
MAX_TURN, MAX_DOCUMENTS = 5, 4


def build_strata(run: FinishedRun) -> Section | None:
    """One table per kind that splits the questions; None if none does."""
    groups = {heading: _split(run.questions, name) for heading, name in KINDS.items()}
    tables = [_build_table(heading, by_name) for heading, by_name in groups.items() if len(by_name) > 1]
    note = "The score of a question is the mean of nDCG@10 of its hits and of its answer's score, as far as both exist."
    return Section(id="strata", title="Kinds of questions", note=note, tables=tables) if tables else None


def name_answerability(question: FinishedQuestion) -> str:
    if question.answer is None or question.answer.answerable is None:
        return ""
    return "answerable" if question.answer.answerable else "unanswerable"


def name_turn(question: FinishedQuestion) -> str:
    return _limit(question.turn, MAX_TURN) if question.turn else ""


def name_follow_up(question: FinishedQuestion) -> str:
    return {None: "", True: "follow-up", False: "no follow-up"}[question.follow_up]


def name_length(question: FinishedQuestion) -> str:
    words = len(question.text.split())
    return LENGTHS[(words > 7) + (words > 12)]


def name_question_word(question: FinishedQuestion) -> str:
    """The first English question word; `other` without one."""
    words = (word.strip("?,.:;'\"").lower() for word in question.text.split())
    return next((word for word in words if word in QUESTION_WORDS), "other")


def name_documents(question: FinishedQuestion) -> str:
    return _limit(len(question.relevant), MAX_DOCUMENTS) if question.grades else ""


KINDS: Mapping[str, Callable[[FinishedQuestion], str]] = {
    "answerability": name_answerability,
    "turn of the conversation": name_turn,
    "follow-up by the rules": name_follow_up,
    "length of the question": name_length,
    "first question word": name_question_word,
    "relevant documents": name_documents,
}
"""The kinds by their headings. An empty name leaves a question out."""


def _split(
    questions: Sequence[FinishedQuestion], name: Callable[[FinishedQuestion], str]
) -> dict[str, list[FinishedQuestion]]:
    groups: dict[str, list[FinishedQuestion]] = {}
    for question in questions:
        if group := name(question):
            groups.setdefault(group, []).append(question)
    order = {length: index for index, length in enumerate(LENGTHS)}
    return {group: groups[group] for group in sorted(groups, key=lambda group: (order.get(group, 0), group))}


def _build_table(heading: str, groups: Mapping[str, Sequence[FinishedQuestion]]) -> Table:
    scores = {name: estimates(np.array([[question.score] for question in group]))[0] for name, group in groups.items()}
    return Table(
        caption=heading,
        columns=(heading, "questions", "measured", "score", "95 % CI", NDCG, "answers"),
        rows=[
            (
                name,
                str(len(group)),
                format_share(sum(not question.is_failed for question in group) / len(group)),
                f"{scores[name].mean:.3f}",
                format_interval(scores[name]),
                _format_mean([question.measures.get(NDCG) for question in group]),
                _format_mean([question.answer.score for question in group if question.answer]),
            )
            for name, group in groups.items()
        ],
        plots=[draw_interval(scores[name], 0, 1, f"{name}: {scores[name].mean:.3f}") for name in groups],
        plot_heading="score from 0 to 1",
    )


def _format_mean(values: Sequence[float | None]) -> str:
    numbers = [value for value in values if value is not None]
    return f"{sum(numbers) / len(numbers):.3f}" if numbers else ""


def _limit(count: int, limit: int) -> str:
    return str(count) if count < limit else f"{limit} or more"
