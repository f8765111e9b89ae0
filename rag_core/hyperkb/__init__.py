"""The extension points of Hyper-KB under its names: sparse retrieval, fusion, and aggregation for a prompt.

A class of your own can take the place of one of these if it has the same methods; nothing is inherited.
"""

from rag_core.hyperkb.aggregation import AggregationStrategy
from rag_core.hyperkb.hybrid_fusion import HybridFusion
from rag_core.hyperkb.sparse_retriever import SparseRetriever

__all__ = ["AggregationStrategy", "HybridFusion", "SparseRetriever"]
