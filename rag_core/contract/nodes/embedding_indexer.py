"""The node that embeds chunks and stores them."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from anyio import to_thread
from pydantic import Field

from rag_core.contract.indexing import embed_chunks
from rag_core.contract.nodes.documents import describe_failure, documents_from_chunks
from rag_core.contract.nodes.node_config import NodeConfig
from rag_core.contract.nodes.running import Inputs, Outputs, as_node, read_input
from rag_core.contract.vector_store.port import BaseVectorStore, Vector
from rag_core.knowledge_base import KnowledgeBase
from rag_core.settings import load_settings
from rag_core.storage.queue import PUSHED_URI


class EmbeddingIndexerConfig(NodeConfig):
    """`vector_store` names a collection, which is created if needed."""

    node_type: Literal["embedding_indexer"] = "embedding_indexer"
    vector_store: str = Field(min_length=1)


class EmbeddingIndexerNode:
    """Inputs: `chunks`, of which some can have an `embedding`. Outputs: `indexed`, their number, and `failures`.

    A document replaces the stored one with its id; one that fails is a failure with the reason. BM25 finds the chunks,
    too. `store` receives the vectors instead of the collection, with the text of each as `content` in the metadata.
    """

    def __init__(self, config: EmbeddingIndexerConfig, store: BaseVectorStore | None = None) -> None:
        self.config, self._store = config, store

    @as_node(lambda _: {"indexed": 0, "failures": []})
    async def run(self, inputs: Inputs) -> Outputs:
        chunks = read_input(inputs, "chunks")
        if self._store is None:
            return await to_thread.run_sync(self._add_to_collection, chunks)
        vectors = await to_thread.run_sync(_embed, chunks)
        return {"indexed": len(await self._store.add(vectors)), "failures": []}

    def _add_to_collection(self, chunks: Sequence[Mapping[str, Any]]) -> Outputs:
        with KnowledgeBase(load_settings()) as knowledge:
            report = knowledge.add(documents_from_chunks(chunks), self.config.vector_store)
        failures = [describe_failure(failure, PUSHED_URI) for failure in report.failures]
        failed = {failure["document_id"] for failure in failures}
        indexed = sum(str(chunk["document_id"]) not in failed for chunk in chunks)
        return {"indexed": indexed, "failures": failures}


def _embed(chunks: Sequence[Mapping[str, Any]]) -> list[Vector]:
    """The vectors of the chunks that have one or can be embedded, without metadata that no store can hold."""
    missing = [chunk["content"] for chunk in chunks if not chunk.get("embedding")]
    vectors = dict(embed_chunks(missing)) if missing else {}
    return [
        Vector(
            id=str(chunk["id"]),
            values=chunk.get("embedding") or vectors[chunk["content"]],
            metadata={
                **{key: value for key, value in (chunk.get("metadata") or {}).items() if value is not None},
                "content": chunk["content"],
            },
        )
        for chunk in chunks
        if chunk.get("embedding") or chunk["content"] in vectors
    ]
