"""The node that splits documents into chunks."""

from collections.abc import Mapping
from typing import Any, Literal, Self

from anyio import to_thread
from pydantic import Field, model_validator

from rag_core.config import SectionsChunker
from rag_core.contract.indexing import build_character_chunker
from rag_core.contract.nodes.documents import describe_chunk, document_from_dict
from rag_core.contract.nodes.node_config import NodeConfig
from rag_core.contract.nodes.running import Inputs, Outputs, as_node, read_input
from rag_core.protocols import Chunker
from rag_core.settings import load_settings
from rag_core.types import DEFAULT_COLLECTION, document_id
from rag_core.wiring.chunking import build_chunker


class ChunkingStrategyConfig(NodeConfig):
    """The sizes are in tokens of the profile's embedding model, or in characters."""

    node_type: Literal["chunking_strategy"] = "chunking_strategy"
    unit: Literal["tokens", "chars"] = "tokens"
    chunk_size: int = Field(200, ge=16)
    chunk_overlap: int = Field(40, ge=0)

    @model_validator(mode="after")
    def _check_overlap(self) -> Self:
        if self.chunk_overlap >= self.chunk_size:
            raise ValueError(f"chunk_overlap must be in [0, chunk_size), got {self.chunk_overlap} of {self.chunk_size}")
        return self


class ChunkingStrategyNode:
    """Inputs: `documents`. Outputs: `chunks` of whole sentences, which do not cross the borders of sections.

    `content[start_index:end_index]` of the document is the chunk's content.
    """

    def __init__(self, config: ChunkingStrategyConfig) -> None:
        self.config = config

    @as_node(lambda _: {"chunks": []})
    async def run(self, inputs: Inputs) -> Outputs:
        documents = read_input(inputs, "documents")
        return {"chunks": await to_thread.run_sync(self._split_documents, documents)}

    def _split_documents(self, documents: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
        tenant, chunker = load_settings().tenant, self._build_chunker()
        return [
            describe_chunk(chunk, document)
            for document in documents
            for chunk in chunker.split(
                document_id(tenant, DEFAULT_COLLECTION, str(document.get("id"))), document_from_dict(document)
            )
        ]

    def _build_chunker(self) -> Chunker:
        size, overlap = self.config.chunk_size, self.config.chunk_overlap
        if self.config.unit == "chars":
            return build_character_chunker(size, overlap)
        chunking = SectionsChunker(type="sections", tokens=size, overlap=overlap)
        return build_chunker(load_settings().model_copy(update={"chunking": chunking}))
