"""The evaluation of a profile's retriever on questions with graded documents: ingest, trace, judge.

`python -m jobs.evaluate` is `rag evaluate`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

from jobs.command_line import run_command
from jobs.ingest import RunnerName, build_runner
from rag_core.errors import DatasetError, UnsharedFolderError

if TYPE_CHECKING:
    from rag_core.config import Settings
    from rag_core.evaluation.answer_report import AnswerEvaluation
    from rag_core.evaluation.answer_traces import AnswerTrace
    from rag_core.evaluation.dataset import Dataset
    from rag_core.evaluation.stages import JudgedQuestion, Trace
    from rag_core.ingestion.report import Plan, SyncReport
    from rag_core.storage.postgres import Postgres

PlanListener: TypeAlias = "Callable[[UUID, Plan], None]"
"""Receives the job's id and its plan before the first document is processed."""


def collection_name(dataset: "Dataset", settings: "Settings") -> str:
    """A name such as `evaluation-mtrag_un+scifact-default`, in which the names after `+` are those of the padding."""
    from rag_core.evaluation.padding import padding_name

    return f"evaluation-{'+'.join([dataset.name, *map(padding_name, dataset.padding)])}-{settings.profile}"


@dataclass(frozen=True, slots=True)
class CorpusRunner:
    """The runner of a corpus in a folder that this process has written.

    On a cluster, only nodes that share its `RAG_HOME` can read the folder. If some do not, this process ingests the
    corpus itself.
    """

    name: RunnerName
    settings: "Settings"

    def run(self, target: Any, sources: Mapping[int, Any], drafts: Sequence[Any], check: Any) -> Any:
        try:
            return build_runner(self.name, self.settings).run(target, sources, drafts, check)
        except UnsharedFolderError:  # raised before anything is read
            return build_runner(RunnerName.inline, self.settings).run(target, sources, drafts, check)


def ingest_dataset(
    dataset: "Dataset",
    collection: str,
    postgres: "Postgres",
    settings: "Settings",
    runner: RunnerName,
    on_plan: PlanListener,
) -> "SyncReport":
    """Syncs the collection with the corpus of the dataset and its padding.

    Raises DatasetError if the collection has other sources: their documents have no grades, so hits on them would
    count as wrong.
    """
    from rag_core.evaluation.dataset import folder_name, write_documents
    from rag_core.evaluation.padding import read_padded_corpus
    from rag_core.ingestion.sync import SyncOptions
    from rag_core.storage.catalog import Catalog
    from rag_core.storage.embedded import rag_home
    from rag_core.wiring.ingestion import build_sync

    if dataset.corpus.is_dir():
        folder, corpus_runner = dataset.corpus, build_runner(runner, settings)
    else:
        folder = rag_home() / "evaluation" / folder_name(collection)
        write_documents(read_padded_corpus(dataset), folder)
        corpus_runner = CorpusRunner(runner, settings)
    job = build_sync(settings, postgres, [str(folder)], collection, SyncOptions(confirmed=True))
    with postgres.connect() as connection:
        uris = [source.uri for source in Catalog(connection, settings.tenant).sources(collection)]
    if others := [uri for uri in uris if uri != job.sources[0].uri]:
        raise DatasetError(
            f"collection {collection!r} has the source {others[0]} besides the dataset; drop the source, or choose "
            "another collection with --collection"
        )
    return job.run(corpus_runner, on_plan)


def judge_traces(
    dataset: "Dataset", collection: str, traces: "Sequence[Trace]", postgres: "Postgres", tenant: str
) -> "list[JudgedQuestion]":
    """Judges every question, in the order of the dataset."""
    from jobs.stored_dataset import locate_answers, read_stored_dataset
    from rag_core.evaluation.stages import fill_variants, judge_question, with_chunk_measures

    rankings = [ranking for trace in traces for ranking in (trace.ranking, *(stage.ranking for stage in trace.stages))]
    stored = read_stored_dataset({id for ranking in rankings for id in ranking}, dataset, collection, postgres, tenant)
    documents = {id: span.document for id, span in stored.chunks.items()}
    searchable = frozenset(stored.documents)
    trace_by_question = {trace.question: trace for trace in traces}
    judged_questions = [
        judge_question(question, trace_by_question[question.id], documents, searchable)
        for question in dataset.questions
    ]
    answers = locate_answers(stored, dataset, postgres, tenant)
    return fill_variants(
        [
            with_chunk_measures(judged, answers[judged.question.id], stored.chunks)
            if judged.question.id in answers
            else judged
            for judged in judged_questions
        ]
    )


def measure_answers(dataset: "Dataset", traces: "Sequence[AnswerTrace]") -> "AnswerEvaluation":
    """Measures every answer, in the order of the dataset."""
    from rag_core.evaluation.answer_measures import measure_answer
    from rag_core.evaluation.answer_report import evaluate_answers

    trace_by_question = {trace.question: trace for trace in traces}
    return evaluate_answers([measure_answer(question, trace_by_question[question.id]) for question in dataset.asked])


if __name__ == "__main__":
    run_command("evaluate")
