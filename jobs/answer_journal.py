"""The answers of a run that has not ended, in a file, so that a run that was killed can be continued."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pydantic import TypeAdapter, ValidationError

from rag_core.config import Settings
from rag_core.evaluation.answer_traces import AnswerTrace
from rag_core.evaluation.dataset import Dataset
from rag_core.evaluation.fingerprints import hash_dataset

FILE_NAME = "answers.partial.jsonl"
_TRACE = TypeAdapter(AnswerTrace)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerJournal:
    """One answer per line, after a line with `key`. Answers of another key are for another question or pipeline.

    Without a path nothing is kept.
    """

    path: Path | None
    key: str

    @classmethod
    def build(cls, folder: Path | None, dataset: Dataset, settings: Settings, own_documents: bool) -> Self:
        key = f"{hash_dataset(dataset)} {settings.pipeline_version} {'own documents' if own_documents else 'all'}"
        return cls(path=folder and folder / FILE_NAME, key=key)

    def read(self) -> dict[str, AnswerTrace]:
        """The answers by question. Questions that failed are not among them, nor is a line that was cut."""
        if self.path is None or not self.path.is_file():
            return {}
        key, *lines = self.path.read_text(encoding="utf-8").split("\n")
        traces = [trace for line in lines if (trace := _parse_line(line))] if key == self.key else []
        return {trace.question: trace for trace in traces if not trace.error}

    @contextmanager
    def appending(self) -> Iterator[Callable[[AnswerTrace], None]]:
        """Writes the file again with what `read` returns. Each call of the function adds a line at once."""
        if self.path is None:
            yield lambda trace: None  # noqa: ARG005
            return
        finished = self.read().values()
        with self.path.open("w", encoding="utf-8") as file:
            file.write(f"{self.key}\n")

            def append(trace: AnswerTrace) -> None:
                file.write(_TRACE.dump_json(trace).decode() + "\n")
                file.flush()

            for trace in finished:
                append(trace)
            yield append


def _parse_line(line: str) -> AnswerTrace | None:
    try:
        return _TRACE.validate_json(line)
    except ValidationError:
        return None
