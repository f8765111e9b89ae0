"""A dataset that was read from another layout."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rag_core.evaluation.dataset import Qrels
from rag_core.evaluation.dataset_lines import Row
from rag_core.evaluation.question import CorpusDocument


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedDataset:
    """The contents of the files to write. `queries` are texts by id, and `qrels` grades by split.

    `answers` and `conversations` are the lines of answers.jsonl and conversations.jsonl, as in `answer_layouts`.
    """

    corpus: Sequence[CorpusDocument]
    queries: Mapping[str, str]
    qrels: Mapping[str, Qrels]
    answers: Sequence[Row] = ()
    conversations: Sequence[Row] = ()
