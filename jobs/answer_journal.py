"""The journal of a run's answers."""

from pathlib import Path

from pydantic import TypeAdapter

from jobs.journal import Journal
from rag_core.config import Settings
from rag_core.evaluation.answer_traces import AnswerTrace
from rag_core.evaluation.conversation_mode import ConversationMode
from rag_core.evaluation.dataset import Dataset
from rag_core.evaluation.fingerprints import hash_dataset

FILE_NAME = "answers.partial.jsonl"
ANSWER = TypeAdapter(AnswerTrace)


def build_answer_journal(
    folder: Path | None, dataset: Dataset, settings: Settings, *, own_documents: bool, mode: ConversationMode
) -> Journal[AnswerTrace]:
    """A journal for the answers of one pipeline to one dataset."""
    key = f"{hash_dataset(dataset)} {settings.pipeline_version} {'own documents' if own_documents else 'all'} {mode}"
    return Journal(path=folder and folder / FILE_NAME, key=key, kind=ANSWER)
