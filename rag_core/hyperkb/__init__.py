"""Hyper-KB under its names: sparse retrieval, fusion, aggregation for a prompt, topic shifts, and experiments.

A class of your own can take the place of one of these if it has the same methods; nothing is inherited.
"""

from rag_core.hyperkb.aggregation import AggregationStrategy
from rag_core.hyperkb.drift_detector import DriftDetector
from rag_core.hyperkb.evaluation.experiment_tracker import ExperimentTracker
from rag_core.hyperkb.hybrid_fusion import HybridFusion
from rag_core.hyperkb.sparse_retriever import SparseRetriever

__all__ = ["AggregationStrategy", "DriftDetector", "ExperimentTracker", "HybridFusion", "SparseRetriever"]
