"""The node interface: a class for each step, configured by a model, with one method `run` from inputs to outputs.

    node = VectorSearchNode(VectorSearchConfig(name="search", vector_store="handbook", top_k=5))
    results = (await node.run({"query": "how often are keys rotated?"}))["results"]

A node that names a vector store reads or writes the collection of this name. Nodes use the profile and the settings of
the environment, like the functions of `rag_core.contract`, and raise the same built-in exceptions.
"""

from rag_core.contract.nodes.conversation_state import ConversationStateConfig, ConversationStateNode
from rag_core.contract.nodes.document_loader import DocumentLoaderConfig, DocumentLoaderNode
from rag_core.contract.nodes.grounded_generator import GroundedGeneratorConfig, GroundedGeneratorNode
from rag_core.contract.nodes.hybrid_fusion import HybridFusionConfig, HybridFusionNode
from rag_core.contract.nodes.memory_store import BaseMemoryStore, InMemoryStore, Session, Turn
from rag_core.contract.nodes.node_config import LLMConfig, NodeConfig, RetryConfig
from rag_core.contract.nodes.vector_search import VectorSearchConfig, VectorSearchNode
from rag_core.contract.vector_store.port import BaseVectorStore, SearchResult, Vector

__all__ = [
    "BaseMemoryStore",
    "BaseVectorStore",
    "ConversationStateConfig",
    "ConversationStateNode",
    "DocumentLoaderConfig",
    "DocumentLoaderNode",
    "GroundedGeneratorConfig",
    "GroundedGeneratorNode",
    "HybridFusionConfig",
    "HybridFusionNode",
    "InMemoryStore",
    "LLMConfig",
    "NodeConfig",
    "RetryConfig",
    "SearchResult",
    "Session",
    "Turn",
    "Vector",
    "VectorSearchConfig",
    "VectorSearchNode",
]
