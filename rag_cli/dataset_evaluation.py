"""The evaluation of one dataset, with progress on the terminal: ingest, search, answer, measure, write."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from rich.console import Console

from jobs.evaluate import collection_name, ingest_dataset, judge_traces, measure_answers
from jobs.ingest import RunnerName
from rag_cli.outcome_progress import collect_outcomes, count_work
from rag_cli.terminal.consoles import stderr_console
from rag_cli.terminal.options import GlobalOptions
from rag_cli.terminal.progress import JobProgress
from rag_core.errors import RagError, UsageError

if TYPE_CHECKING:
    from jobs.answer_scores import ScoreTask
    from rag_core.config import Settings
    from rag_core.evaluation.answer_measures import MeasuredAnswer
    from rag_core.evaluation.answer_report import AnswerEvaluation
    from rag_core.evaluation.conversation_groups import GroupComparison
    from rag_core.evaluation.conversation_mode import ConversationMode
    from rag_core.evaluation.dataset import Dataset, Run
    from rag_core.evaluation.finished_run import FinishedRun
    from rag_core.evaluation.report import Evaluation
    from rag_core.evaluation.stages import JudgedQuestion, Trace
    from rag_core.evaluation.waterfall import Waterfall
    from rag_core.ingestion.report import SyncReport
    from rag_core.storage.postgres import Postgres

MAX_SHOWN_DOCUMENTS = 5


class Asked(Protocol):
    """The outcome of a question."""

    @property
    def error(self) -> str: ...


Outcome = TypeVar("Outcome", bound=Asked)


@dataclass(frozen=True, kw_only=True)
class Choices:
    """The options of `rag evaluate` that all its datasets share."""

    k: int
    limit: int | None
    split: str
    collection: str | None
    against: Path | None
    retriever: Path | None
    runner: RunnerName
    callers: int
    padding: list[Path]
    modes: "Sequence[ConversationMode]"
    answers: bool
    own_documents: bool
    ragas: "ModelEndpoint | None"
    judge: "ModelEndpoint | None"


@dataclass(frozen=True)
class ModelEndpoint:
    """An OpenAI-compatible endpoint, and its model."""

    url: str
    model: str


@dataclass(frozen=True, kw_only=True)
class DatasetResults:
    """The results for one dataset. `answers` is None if no answers were measured.

    `comparisons` are with the other ways of searching conversations that were measured before.
    """

    description: Mapping[str, Any]
    evaluation: "Evaluation"
    answers: "AnswerEvaluation | None"
    waterfall: "Waterfall"
    comparisons: "Sequence[GroupComparison]" = ()

    @cached_property
    def report(self) -> dict[str, Any]:
        from rag_core.evaluation.answer_report import answers_to_json
        from rag_core.evaluation.report import to_json
        from rag_core.evaluation.waterfall import waterfall_to_json

        evaluation = self.answers
        answers = {"coverage": evaluation.coverage, "answers": answers_to_json(evaluation)} if evaluation else {}
        waterfall = waterfall_to_json(self.waterfall)
        comparisons = [asdict(comparison) for comparison in self.comparisons]
        over = {"conversation_comparisons": comparisons} if comparisons else {}
        return {**self.description, **to_json(self.evaluation), **over, **answers, "waterfall": waterfall}

    @property
    def run(self) -> "FinishedRun":
        from jobs.answer_files import answer_row
        from jobs.evaluation_files import question_row
        from rag_core.evaluation.finished_run import build_finished_run

        questions = [question_row(judged) for judged in self.evaluation.questions]
        answers = [answer_row(measured, str) for measured in self.answers.answers] if self.answers else []
        return build_finished_run(self.report, questions, answers)


@dataclass(frozen=True, kw_only=True)
class DatasetRun:
    """A dataset with the pipeline and the collection to measure. Files are written to `out`, if it is given.

    `mode` says how a question with a history is searched.
    """

    dataset: "Dataset"
    settings: "Settings"
    collection: str
    postgres: "Postgres"
    choices: Choices
    console: Console
    mode: "ConversationMode"
    out: Path | None

    def ingest(self) -> "SyncReport":
        with JobProgress(self.postgres, self.settings.tenant, self.console) as progress:
            return ingest_dataset(
                self.dataset, self.collection, self.postgres, self.settings, self.choices.runner, progress.begin
            )

    def search(self) -> "list[Trace]":
        from jobs.question_runner import run_questions
        from jobs.retrieval_traces import TraceTask

        choices, questions = self.choices, self.dataset.questions
        task = TraceTask.build(self.settings, self.postgres, self.collection, choices.k, choices.callers, self.mode)
        traces = run_questions(task, questions, choices.runner)
        return _require_answers(collect_outcomes(traces, len(questions), self.console, "searching"))

    def answer(self) -> "AnswerEvaluation":
        """Continues the run that left its answers and their scores in `out`, if it was killed."""
        from jobs.answer_journal import build_answer_journal
        from jobs.question_answers import AnswerTask, answer_questions
        from jobs.stored_dataset import list_graded_uris
        from rag_core.evaluation.answer_report import evaluate_answers

        choices, dataset, settings = self.choices, self.dataset, self.settings
        arguments = (dataset, self.collection, self.postgres, settings.tenant)
        uris = list_graded_uris(*arguments) if choices.own_documents else {}
        task = AnswerTask.build(settings, self.postgres, self.collection, uris, choices.callers, self.mode)
        journal = build_answer_journal(self.out, dataset, settings, own_documents=choices.own_documents, mode=self.mode)
        replies = answer_questions(task, dataset.asked, choices.runner, journal)
        traces = collect_outcomes(replies, len(dataset.asked), self.console, "answering", count_work)
        answers: Sequence[MeasuredAnswer] = measure_answers(dataset, _require_answers(traces)).answers
        for score_task in self._list_score_tasks():
            answers = self._score(score_task, answers)
        return evaluate_answers(answers)

    def _score(self, task: "ScoreTask", answers: "Sequence[MeasuredAnswer]") -> "list[MeasuredAnswer]":
        from jobs.answer_scores import add_scores, build_score_journal, score_answers

        scores = score_answers(task, answers, self.choices.runner, build_score_journal(self.out, task))
        verb = f"scoring ({task.name})"
        return add_scores(answers, collect_outcomes(scores, len(answers), self.console, verb, count_work))

    def _list_score_tasks(self) -> "list[ScoreTask]":
        from jobs.ragas_scores import RagasTask, load_embedder
        from jobs.rubric_scores import RubricTask

        ragas, judge = self.choices.ragas, self.choices.judge
        load = partial(load_embedder, self.settings.embedding)
        tasks: list[ScoreTask] = [RubricTask(url=judge.url, model=judge.model)] if judge else []
        return [*tasks, *([RagasTask(url=ragas.url, model=ragas.model, load_embedder=load)] if ragas else [])]

    def analyze_failures(self, judged: "Sequence[JudgedQuestion]", answers: "AnswerEvaluation | None") -> "Waterfall":
        from jobs.failure_analysis import FailureAnalysis

        analysis = FailureAnalysis(
            dataset=self.dataset,
            settings=self.settings,
            collection=self.collection,
            postgres=self.postgres,
            own_documents=self.choices.own_documents,
            mode=self.mode,
        )
        with self.console.status("analyzing failures"):
            return analysis.run(judged, answers.answers if answers else (), self.choices.runner, self.choices.callers)

    def describe(self) -> dict[str, Any]:
        from jobs.machine import describe_machine
        from jobs.provenance import describe_program
        from jobs.question_answers import describe_judge
        from rag_core.evaluation.fingerprints import hash_dataset, hash_grades
        from rag_core.evaluation.padding import padding_name

        return {
            "dataset": self.dataset.name,
            "run": str(self.out) if self.out else None,
            "split": self.choices.split,
            "tenant": self.settings.tenant,
            "collection": self.collection,
            "padding": [padding_name(corpus) for corpus in self.dataset.padding],
            "conversation": self.mode.value if self.dataset.has_history else None,
            "profile": self.settings.profile,
            "pipeline_version": self.settings.pipeline_version,
            "dataset_hash": hash_dataset(self.dataset),
            "grades_hash": hash_grades(self.dataset),
            "judge": {
                **describe_judge(self.settings),
                **{task.name: task.description for task in self._list_score_tasks()},
            },
            "machine": describe_machine(),
            **describe_program(),
            "k": self.choices.k,
            "callers": self.choices.callers,
            "own_documents": self.choices.own_documents,
        }

    def write(self, folder: Path, results: DatasetResults) -> None:
        """Writes the files of the evaluation and its report, and deletes those of the run that has not ended."""
        from jobs.answer_files import write_answers
        from jobs.evaluation_files import write_evaluation
        from jobs.journal import JOURNALS
        from jobs.report_files import write_report
        from jobs.stored_dataset import document_id_from_uri
        from rag_core.evaluation.gate import Gate

        failures = results.waterfall.labels
        write_evaluation(folder, results.evaluation, results.report, failures)
        if results.answers:
            write_answers(folder, results.answers.answers, partial(document_id_from_uri, self.dataset), failures)
            for journal in folder.glob(JOURNALS):
                journal.unlink()
        write_report(folder, base="", gate=Gate())


def evaluate_dataset(
    folder: Path, choices: Choices, options: GlobalOptions, outs: "Mapping[ConversationMode, Path | None]"
) -> list[DatasetResults]:
    """Ingests the corpus, and measures each way of searching conversations; its files are written to its `outs`."""
    from jobs.evaluation_files import make_folder
    from jobs.telemetry import trace_evaluation
    from rag_core.evaluation.dataset import read_dataset
    from rag_core.evaluation.padding import pad_dataset

    started = time.perf_counter()
    dataset = pad_dataset(read_dataset(folder, choices.split), choices.padding).limit_questions(choices.limit)
    _check_modes(dataset, choices.modes)
    other_run, run_notices = _read_other_run(choices.against, dataset, choices.split)
    for out in filter(None, outs.values()):
        make_folder(out)
    settings, notices = _apply_retriever(options.settings, choices.retriever)
    results: list[DatasetResults] = []
    with stderr_console(options.quiet) as console, trace_evaluation(settings.tenant, settings.profile):
        runs = [_build_run(dataset, settings, choices, console, mode, outs[mode]) for mode in choices.modes]
        report = runs[0].ingest()
        notices = [*notices, *_ingest_notices(report), *run_notices, *_missing_notices(dataset)]
        for run in runs:
            description = {"notices": notices, "ingest_seconds": report.seconds}
            results.append(_measure(run, description, other_run, results, started))
            started = time.perf_counter()
    return results


def _check_modes(dataset: "Dataset", modes: "Sequence[ConversationMode]") -> None:
    """Raises UsageError if the dataset lacks what a mode searches."""
    from rag_core.evaluation.conversation_mode import ConversationMode

    if len(modes) > 1 and not dataset.has_history:
        raise UsageError(f"several ways of --conversation require questions with a history, {dataset.name} has none")
    if ConversationMode.gold in modes and not any(question.rewrite for question in dataset.asked):
        raise UsageError(f"--conversation gold requires rewrites.jsonl, {dataset.name} has none")


def _measure(
    run: DatasetRun,
    description: Mapping[str, Any],
    other_run: "Run | None",
    earlier: Sequence[DatasetResults],
    started: float,
) -> DatasetResults:
    """Asks the questions, measures the outcomes, and writes the files."""
    from rag_core.evaluation.conversation_groups import compare_groups
    from rag_core.evaluation.report import build_evaluation

    asked_at = time.perf_counter()
    traces = run.search()
    rate = len(traces) / (time.perf_counter() - asked_at)
    answers = run.answer() if run.choices.answers else None
    judged = judge_traces(run.dataset, run.collection, traces, run.postgres, run.settings.tenant)
    waterfall = run.analyze_failures(judged, answers)
    seconds = round(time.perf_counter() - started, 3)
    results = DatasetResults(
        description={**run.describe(), **description, "questions_per_second": round(rate, 3), "seconds": seconds},
        evaluation=build_evaluation(judged, other_run),
        answers=answers,
        waterfall=waterfall,
        comparisons=[
            row
            for other in earlier
            for row in compare_groups(other.description["conversation"], other.evaluation.questions, judged)
        ],
    )
    if run.out:
        run.write(run.out, results)
    return results


def _build_run(
    dataset: "Dataset",
    settings: "Settings",
    choices: Choices,
    console: Console,
    mode: "ConversationMode",
    out: Path | None,
) -> DatasetRun:
    """Opens the store, and chooses the collection."""
    from rag_core.storage.postgres import Postgres

    return DatasetRun(
        dataset=dataset,
        settings=settings,
        collection=choices.collection or collection_name(dataset, settings),
        postgres=Postgres.open(settings.store.url),
        choices=choices,
        console=console,
        mode=mode,
        out=out,
    )


def _apply_retriever(settings: "Settings", file: Path | None) -> "tuple[Settings, list[str]]":
    """The settings with the retriever of the file, and the notices about its translation."""
    from rag_core.config_import.retriever_files import read_retriever
    from rag_core.config_import.target import describe_target
    from rag_core.settings import read_document, replace_sections

    if file is None:
        return settings, []
    sections, notices = read_retriever(read_document(file), describe_target(settings))
    return replace_sections(settings, sections, str(file)), notices


def _read_other_run(path: Path | None, dataset: "Dataset", split: str) -> "tuple[Run | None, list[str]]":
    """The run of `--against`, and a notice if it lacks some of the questions. Raises UsageError if it lacks all."""
    from rag_core.evaluation.dataset import read_run
    from rag_core.evaluation.report import count_answered

    if path is None:
        return None, []
    run = read_run(path)
    count, total = count_answered(dataset.questions, run), len(dataset.questions)
    if not count:
        raise UsageError(
            f"--against must answer questions of {dataset.name}, split {split}, got none of {total} in {path}"
        )
    return run, [] if count == total else [f"{path} answers {count} of {total} questions; the others count as 0"]


def _require_answers(outcomes: list[Outcome]) -> list[Outcome]:
    """Raises RagError if no question could be answered."""
    if all(outcome.error for outcome in outcomes):
        raise RagError(f"no question could be answered: {outcomes[0].error}")
    return outcomes


def _ingest_notices(report: "SyncReport") -> list[str]:
    """The notices of the ingest, and one about documents that cannot be found."""
    missing = {name: report.documents[name] for name in ("failed", "skipped", "quarantined") if report.documents[name]}
    counts = ", ".join(f"{count} {name}" for name, count in missing.items())
    return [*([f"some documents are not searched: {counts}"] if counts else []), *report.notices]


def _missing_notices(dataset: "Dataset") -> list[str]:
    """A notice about graded documents that are not in the corpus."""
    if not dataset.missing:
        return []
    names = ", ".join(dataset.missing[:MAX_SHOWN_DOCUMENTS])
    return [f"{len(dataset.missing)} graded documents are not in the corpus, and are not scored: {names}"]
