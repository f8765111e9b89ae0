"""A finished evaluation of one dataset, question by question, as the folder of `rag evaluate --out` holds it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rag_core.evaluation.answer_traces import REFUSALS
from rag_core.evaluation.metrics import Grades
from rag_core.evaluation.stages import FINAL

NDCG = "ndcg@10"


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedAnswer:
    """An answer with its measures. `failures` are reasons, by measure."""

    text: str
    finish: str
    references: tuple[str, ...] = ()
    answerable: bool | None = None
    measures: Mapping[str, float] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    error: str = ""

    @property
    def is_refusal(self) -> bool:
        return self.finish in REFUSALS

    @property
    def score(self) -> float | None:
        """The similarity to the references; for a question without references, whether it was rightly refused or not.

        A right answer is short like its reference, or contains it. None if neither was measured.
        """
        values = [self.measures[name] for name in ("contains_reference", "token_f1") if name in self.measures]
        return max(values) if values else self.measures.get("abstention")


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedQuestion:
    """A question with its rankings of documents by stage, in the order of the flow.

    `measures` are those of the hits. `timings` are seconds by stage. `failure` is the label of the failure waterfall.
    `turn` is the position in its conversation, 0 if it is unknown. `follow_up` says whether the rules take it for a
    follow-up, None if they were not applied. A question that was only answered has no rankings.
    """

    id: str
    text: str
    grades: Grades = field(default_factory=dict)
    rankings: Mapping[str, Sequence[str]] = field(default_factory=dict)
    measures: Mapping[str, float] = field(default_factory=dict)
    timings: Mapping[str, float] = field(default_factory=dict)
    seconds: float | None = None
    error: str = ""
    lost: Mapping[str, str] = field(default_factory=dict)
    turn: int = 0
    follow_up: bool | None = None
    failure: str = ""
    answer: FinishedAnswer | None = None

    @property
    def relevant(self) -> frozenset[str]:
        return frozenset(id for id, grade in self.grades.items() if grade > 0)

    @property
    def ranks(self) -> dict[str, int | None]:
        """The rank of the first relevant document by stage; None if the stage did not find any."""
        return {stage: self._rank(ranking) for stage, ranking in self.rankings.items()}

    @property
    def is_failed(self) -> bool:
        return bool(self.error or (self.answer and self.answer.error))

    @property
    def score(self) -> float:
        """The mean of the hits' nDCG@10 and the answer's score, as far as they exist; 0 if the question failed."""
        if self.is_failed:
            return 0.0
        scores = [self.measures.get(NDCG), self.answer.score if self.answer else None]
        numbers = [score for score in scores if score is not None]
        return sum(numbers) / len(numbers) if numbers else 1.0

    def _rank(self, ranking: Sequence[str]) -> int | None:
        return next((rank for rank, id in enumerate(ranking, start=1) if id in self.relevant), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRun:
    """`report` is the content of report.json."""

    report: Mapping[str, Any]
    questions: Sequence[FinishedQuestion]

    @property
    def answered(self) -> list[FinishedQuestion]:
        return [question for question in self.questions if question.answer]

    @property
    def searched(self) -> list[FinishedQuestion]:
        """The questions with graded documents."""
        return [question for question in self.questions if question.grades]

    @property
    def measures(self) -> dict[str, Mapping[str, Any]]:
        """The mean, low, high, coverage and number of questions of each measure; those of the hits are first."""
        report, hits = self.report, self.report.get("stages", {}).get(FINAL, {}).get("measures", {})
        count = report.get("questions", 0)
        coverage = 1 - len(report.get("failures", ())) / max(1, count)
        answers: Mapping[str, Mapping[str, Any]] = report.get("answers", {}).get("measures", {})
        by_name = {name: {**values, "coverage": coverage, "questions": count} for name, values in hits.items()}
        return {**by_name, **answers}

    @property
    def coverage(self) -> float:
        """The lowest coverage of a measure."""
        return min((values["coverage"] for values in self.measures.values()), default=0.0)


def build_finished_run(
    report: Mapping[str, Any], questions: Sequence[Mapping[str, Any]], answers: Sequence[Mapping[str, Any]]
) -> FinishedRun:
    """Builds a run from the rows of questions.parquet and answers.parquet."""
    answer_rows = {row["question_id"]: row for row in answers}
    ids = {row["question_id"] for row in questions}
    return FinishedRun(
        report=report,
        questions=[
            *(_build_question(row, answer_rows.get(row["question_id"])) for row in questions),
            *(_build_unsearched(row) for row in answers if row["question_id"] not in ids),
        ],
    )


def _build_question(row: Mapping[str, Any], answer: Mapping[str, Any] | None) -> FinishedQuestion:
    stages = row["stages"] or []
    timings: dict[str, float] = {}
    for timing in row["timings"] or []:
        timings[timing["stage"]] = timings.get(timing["stage"], 0.0) + timing["seconds"]
    return FinishedQuestion(
        id=row["question_id"],
        text=row["text"] or "",
        grades=dict(row["grades"]),
        rankings={stage["stage"]: stage["documents"] or [] for stage in stages},
        measures=next((dict(stage["measures"]) for stage in stages if stage["stage"] == FINAL), {}),
        timings=timings,
        seconds=row["seconds"],
        error=row["error"] or "",
        lost=dict(row["lost"] or []),
        turn=row.get("turn") or 0,
        follow_up=row.get("follow_up"),
        failure=row.get("failure") or (answer or {}).get("failure") or "",
        answer=_build_answer(answer) if answer else None,
    )


def _build_unsearched(row: Mapping[str, Any]) -> FinishedQuestion:
    return FinishedQuestion(
        id=row["question_id"],
        text=row["question"],
        turn=row.get("turn") or 0,
        failure=row.get("failure") or "",
        answer=_build_answer(row),
    )


def _build_answer(row: Mapping[str, Any]) -> FinishedAnswer:
    return FinishedAnswer(
        text=row.get("answer") or "",
        finish=row.get("finish") or "",
        references=tuple(row.get("references") or ()),
        answerable=row.get("answerable"),
        measures=dict(row["measures"]),
        failures=dict(row["failures"]),
        seconds=row["seconds"],
        error=row.get("error") or "",
    )
