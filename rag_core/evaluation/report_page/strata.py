"""The measures of a run for kinds of questions, as far as the run can tell them apart."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from rag_core.evaluation.finished_run import NDCG, FinishedQuestion, FinishedRun
from rag_core.evaluation.report_page.charts import draw_interval
from rag_core.evaluation.report_page.section import Section, Table, format_interval, format_share
from rag_core.evaluation.significance import estimates

QUESTION_WORDS = ("who", "what", "when", "where", "why", "which", "how")
MAX_TURN = 5
LENGTHS = ("up to 7 words", "8 to 12 words", "more than 12 words")

KINDS: Mapping[str, Callable[[FinishedQuestion], str]] = {
    "answerability": lambda question: _name_answerability(question),
    "turn of the conversation": lambda question: _limit(question.turn, MAX_TURN) if question.turn else "",
    "length of the question": lambda question: _name_length(len(question.text.split())),
    "first question word": lambda question: _find_question_word(question.text),
    "relevant documents": lambda question: _limit(len(question.relevant), 4) if question.grades else "",
}
"""The kinds by their headings. An empty name leaves a question out."""


def build_strata(run: FinishedRun) -> Section | None:
    """One table per kind that splits the questions; None if none does."""
    tables = [_build_table(heading, _split(run.questions, name)) for heading, name in KINDS.items()]
    shown = [table for table in tables if len(table.rows) > 1]
    note = "The score of a question is the mean of nDCG@10 of its hits and of its answer's score, as far as both exist."
    return Section(id="strata", title="Kinds of questions", note=note, tables=shown) if shown else None


def _split(
    questions: Sequence[FinishedQuestion], name: Callable[[FinishedQuestion], str]
) -> dict[str, list[FinishedQuestion]]:
    groups: dict[str, list[FinishedQuestion]] = {}
    for question in questions:
        if group := name(question):
            groups.setdefault(group, []).append(question)
    order = {name: index for index, name in enumerate(LENGTHS)}
    return {name: groups[name] for name in sorted(groups, key=lambda name: (order.get(name, 0), name))}


def _build_table(heading: str, groups: Mapping[str, Sequence[FinishedQuestion]]) -> Table:
    scores = {name: estimates(np.array([[q.score] for q in group]))[0] for name, group in groups.items()}
    return Table(
        caption=heading,
        columns=(heading, "questions", "measured", "score", "95 % CI", NDCG, "answers"),
        rows=[
            (
                name,
                str(len(group)),
                format_share(sum(not _is_failed(question) for question in group) / len(group)),
                f"{scores[name].mean:.3f}",
                format_interval(scores[name]),
                _format_mean([q.measures.get(NDCG) for q in group]),
                _format_mean([q.answer.score for q in group if q.answer]),
            )
            for name, group in groups.items()
        ],
        plots=[draw_interval(scores[name], 0, 1, f"{name}: {scores[name].mean:.3f}") for name in groups],
        plot_heading="score from 0 to 1",
    )


def _is_failed(question: FinishedQuestion) -> bool:
    return bool(question.error or (question.answer and question.answer.error))


def _format_mean(values: Sequence[float | None]) -> str:
    numbers = [value for value in values if value is not None]
    return f"{sum(numbers) / len(numbers):.3f}" if numbers else ""


def _name_answerability(question: FinishedQuestion) -> str:
    if question.answer is None or question.answer.answerable is None:
        return ""
    return "answerable" if question.answer.answerable else "unanswerable"


def _name_length(words: int) -> str:
    return LENGTHS[(words > 7) + (words > 12)]


def _find_question_word(text: str) -> str:
    """The first English question word; `other` without one."""
    words = (word.strip("?,.:;'\"").lower() for word in text.split())
    return next((word for word in words if word in QUESTION_WORDS), "other")


def _limit(count: int, limit: int) -> str:
    return str(count) if count < limit else f"{limit} or more"
