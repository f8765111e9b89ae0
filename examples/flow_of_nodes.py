"""Indexes a folder and answers a question by nodes: both searches, their fusion, a context, an answer, its references.

Example: python examples/flow_of_nodes.py demo/corpus "How long may a dive last in cold water?"
"""

import asyncio
import sys
from typing import Any

from rag_core.contract.nodes import (
    BM25SearchConfig,
    BM25SearchNode,
    ChunkingStrategyConfig,
    ChunkingStrategyNode,
    CitationsFormatterConfig,
    CitationsFormatterNode,
    ContextCompressorConfig,
    ContextCompressorNode,
    DocumentLoaderConfig,
    DocumentLoaderNode,
    EmbeddingIndexerConfig,
    EmbeddingIndexerNode,
    GroundedGeneratorConfig,
    GroundedGeneratorNode,
    HybridFusionConfig,
    HybridFusionNode,
    LLMConfig,
    MetadataExtractorConfig,
    MetadataExtractorNode,
    VectorSearchConfig,
    VectorSearchNode,
)

COLLECTION = "flow"


async def index_folder(folder: str) -> int:
    loader = DocumentLoaderNode(DocumentLoaderConfig(name="load", source_type="file", source_config={"path": folder}))
    chunker = ChunkingStrategyNode(ChunkingStrategyConfig(name="chunk"))
    extractor = MetadataExtractorNode(MetadataExtractorConfig(name="metadata"))
    indexer = EmbeddingIndexerNode(EmbeddingIndexerConfig(name="index", vector_store=COLLECTION))
    outputs = await loader.run({})
    for node in (extractor, chunker, indexer):
        outputs = await node.run(outputs)
    return int(outputs["indexed"])


async def answer(question: str) -> dict[str, Any]:
    dense = VectorSearchNode(VectorSearchConfig(name="dense", vector_store=COLLECTION, top_k=40))
    bm25 = BM25SearchNode(BM25SearchConfig(name="bm25", vector_store=COLLECTION, top_k=40))
    fusion = HybridFusionNode(HybridFusionConfig(name="fuse"))
    compressor = ContextCompressorNode(ContextCompressorConfig(name="compress", max_tokens=2000))
    generator = GroundedGeneratorNode(GroundedGeneratorConfig(name="write", llm_config=LLMConfig(), system_prompt=""))
    formatter = CitationsFormatterNode(CitationsFormatterConfig(name="cite"))
    vector, words = await asyncio.gather(dense.run({"query": question}), bm25.run({"query": question}))
    fused = await fusion.run({"retrieval_results": {"vector": vector["results"], "bm25": words["results"]}})
    context = await compressor.run({"results": fused["fused_results"]})
    written = await generator.run({"query": question, **context})
    return {**written, **await formatter.run({**written, **context})}


async def main(folder: str, question: str) -> None:
    print(f"{await index_folder(folder)} chunks")
    reply = await answer(question)
    print(reply["response"])
    for citation in reply["citations"]:
        print(f"[{citation['id']}] {citation['title']}: {citation['snippet']}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
