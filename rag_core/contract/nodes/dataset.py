"""The node that reads a golden dataset."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

from anyio import to_thread
from pydantic import Field

from rag_core.contract.nodes.node_config import NodeConfig
from rag_core.contract.nodes.running import Inputs, Outputs, run_node
from rag_core.errors import DatasetError
from rag_core.evaluation.dataset import read_corpus, read_dataset


class DatasetConfig(NodeConfig):
    """`path` is a folder in BEIR's layout."""

    node_type: Literal["dataset"] = "dataset"
    path: str = Field(min_length=1)
    split: str = "test"


class DatasetNode:
    """In: `limit`, the number of questions; by default all. Out: `documents`, the corpus, and `queries`.

    A query has `query_id`, `query` and `relevant`, which holds the grades by document id. That is also the `source` of
    the document.
    """

    def __init__(self, config: DatasetConfig) -> None:
        self.config = config

    async def run(self, inputs: Inputs) -> Outputs:
        read = partial(to_thread.run_sync, self._read, inputs.get("limit"))
        return await run_node(self.config, read, {"documents": [], "queries": []})

    def _read(self, limit: int | None) -> Outputs:
        dataset = read_dataset(Path(self.config.path), self.config.split).limit_questions(limit)
        if dataset.corpus.is_dir():
            raise DatasetError(
                f"the dataset must have corpus.jsonl, got the files of {dataset.corpus}: load these instead"
            )
        queries = [
            {"query_id": question.id, "query": question.text, "relevant": dict(question.grades)}
            for question in dataset.questions
        ]
        return {"documents": list(_read_documents(dataset.corpus)), "queries": queries}


def _read_documents(corpus: Path) -> Iterator[dict[str, Any]]:
    for document in read_corpus(corpus):
        metadata = {"source": document.id, "format": "text", "title": document.title}
        yield {"id": document.id, "content": document.text, "metadata": metadata}
