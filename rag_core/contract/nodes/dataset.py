"""The node that reads a golden dataset."""

from pathlib import Path
from typing import Literal

from anyio import to_thread
from pydantic import Field

from rag_core.contract.nodes.node_config import NodeConfig
from rag_core.contract.nodes.running import Inputs, Outputs, as_node
from rag_core.errors import DatasetError
from rag_core.evaluation.dataset import read_corpus, read_dataset


class DatasetConfig(NodeConfig):
    """`path` is a folder in BEIR's layout."""

    node_type: Literal["dataset"] = "dataset"
    path: str = Field(min_length=1)
    split: str = "test"


class DatasetNode:
    """Inputs: `limit`, the number of questions, by default all. Outputs: `documents`, the corpus, and `queries`.

    A query has `query_id`, `query` and `relevant`, which holds the grades by document id. That is also the `source` of
    the document.
    """

    def __init__(self, config: DatasetConfig) -> None:
        self.config = config

    @as_node(lambda _: {"documents": [], "queries": []})
    async def run(self, inputs: Inputs) -> Outputs:
        return await to_thread.run_sync(self._read_files, inputs.get("limit"))

    def _read_files(self, limit: int | None) -> Outputs:
        dataset = read_dataset(Path(self.config.path), self.config.split).limit_questions(limit)
        if dataset.corpus.is_dir():
            raise DatasetError(
                f"the dataset must have corpus.jsonl, got the files of {dataset.corpus}: load these instead"
            )
        queries = [
            {"query_id": question.id, "query": question.text, "relevant": dict(question.grades)}
            for question in dataset.questions
        ]
        documents = [
            {
                "id": document.id,
                "content": document.text,
                "metadata": {"source": document.id, "format": "text", "title": document.title},
            }
            for document in read_corpus(dataset.corpus)
        ]
        return {"documents": documents, "queries": queries}
