"""The node interface: a class for each step, configured by a model, with one method `run` from inputs to outputs.

    node = VectorSearchNode(VectorSearchConfig(name="search", vector_store="handbook", top_k=5))
    results = (await node.run({"query": "how often are keys rotated?"}))["results"]

A node that names a vector store reads or writes the collection of this name. Nodes use the profile and the settings of
the environment, like the functions of `rag_core.contract`, and raise the same built-in exceptions.
"""

from rag_core.contract.nodes.ab_testing import ABTestingConfig, ABTestingNode
from rag_core.contract.nodes.analytics_export import AnalyticsExportConfig, AnalyticsExportNode
from rag_core.contract.nodes.answer_quality_evaluation import AnswerQualityEvaluationConfig, AnswerQualityEvaluationNode
from rag_core.contract.nodes.bm25_search import BM25SearchConfig, BM25SearchNode
from rag_core.contract.nodes.chunking_strategy import ChunkingStrategyConfig, ChunkingStrategyNode
from rag_core.contract.nodes.citations_formatter import CitationsFormatterConfig, CitationsFormatterNode
from rag_core.contract.nodes.context_compressor import ContextCompressorConfig, ContextCompressorNode
from rag_core.contract.nodes.conversation_state import ConversationStateConfig, ConversationStateNode
from rag_core.contract.nodes.coreference_resolver import CoreferenceResolverConfig, CoreferenceResolverNode
from rag_core.contract.nodes.dataset import DatasetConfig, DatasetNode
from rag_core.contract.nodes.document_loader import DocumentLoaderConfig, DocumentLoaderNode
from rag_core.contract.nodes.embedding_indexer import EmbeddingIndexerConfig, EmbeddingIndexerNode
from rag_core.contract.nodes.failure_analysis import FailureAnalysisConfig, FailureAnalysisNode
from rag_core.contract.nodes.feedback_ingestion import FeedbackIngestionConfig, FeedbackIngestionNode
from rag_core.contract.nodes.grounded_generator import GroundedGeneratorConfig, GroundedGeneratorNode
from rag_core.contract.nodes.hallucination_guard import HallucinationGuardConfig, HallucinationGuardNode
from rag_core.contract.nodes.hybrid_fusion import HybridFusionConfig, HybridFusionNode
from rag_core.contract.nodes.incremental_indexer import IncrementalIndexerConfig, IncrementalIndexerNode
from rag_core.contract.nodes.llm_judge import LLMJudgeConfig, LLMJudgeNode
from rag_core.contract.nodes.memory_store import BaseMemoryStore, InMemoryStore
from rag_core.contract.nodes.memory_turns import Session, Turn
from rag_core.contract.nodes.metadata_extractor import MetadataExtractorConfig, MetadataExtractorNode
from rag_core.contract.nodes.node_config import LLMConfig, NodeConfig, RetryConfig
from rag_core.contract.nodes.postgres_memory import PostgresMemoryStore
from rag_core.contract.nodes.query_clarification import QueryClarificationConfig, QueryClarificationNode
from rag_core.contract.nodes.query_classifier import QueryClassifierConfig, QueryClassifierNode
from rag_core.contract.nodes.query_rewrite import QueryRewriteConfig, QueryRewriteNode
from rag_core.contract.nodes.re_ranker import ReRankerConfig, ReRankerNode
from rag_core.contract.nodes.retrieval_evaluation import RetrievalEvaluationConfig, RetrievalEvaluationNode
from rag_core.contract.nodes.session_management import SessionManagementConfig, SessionManagementNode
from rag_core.contract.nodes.streaming_generator import StreamingGeneratorConfig, StreamingGeneratorNode
from rag_core.contract.nodes.topic_shift_detector import TopicShiftDetectorConfig, TopicShiftDetectorNode
from rag_core.contract.nodes.turn_annotation import TurnAnnotationConfig, TurnAnnotationNode
from rag_core.contract.nodes.user_feedback_collection import UserFeedbackCollectionConfig, UserFeedbackCollectionNode
from rag_core.contract.nodes.vector_search import VectorSearchConfig, VectorSearchNode
from rag_core.contract.vector_store.port import BaseVectorStore, SearchResult, Vector

__all__ = [
    "ABTestingConfig",
    "ABTestingNode",
    "AnalyticsExportConfig",
    "AnalyticsExportNode",
    "AnswerQualityEvaluationConfig",
    "AnswerQualityEvaluationNode",
    "BM25SearchConfig",
    "BM25SearchNode",
    "BaseMemoryStore",
    "BaseVectorStore",
    "ChunkingStrategyConfig",
    "ChunkingStrategyNode",
    "CitationsFormatterConfig",
    "CitationsFormatterNode",
    "ContextCompressorConfig",
    "ContextCompressorNode",
    "ConversationStateConfig",
    "ConversationStateNode",
    "CoreferenceResolverConfig",
    "CoreferenceResolverNode",
    "DatasetConfig",
    "DatasetNode",
    "DocumentLoaderConfig",
    "DocumentLoaderNode",
    "EmbeddingIndexerConfig",
    "EmbeddingIndexerNode",
    "FailureAnalysisConfig",
    "FailureAnalysisNode",
    "FeedbackIngestionConfig",
    "FeedbackIngestionNode",
    "GroundedGeneratorConfig",
    "GroundedGeneratorNode",
    "HallucinationGuardConfig",
    "HallucinationGuardNode",
    "HybridFusionConfig",
    "HybridFusionNode",
    "InMemoryStore",
    "IncrementalIndexerConfig",
    "IncrementalIndexerNode",
    "LLMConfig",
    "LLMJudgeConfig",
    "LLMJudgeNode",
    "MetadataExtractorConfig",
    "MetadataExtractorNode",
    "NodeConfig",
    "PostgresMemoryStore",
    "QueryClarificationConfig",
    "QueryClarificationNode",
    "QueryClassifierConfig",
    "QueryClassifierNode",
    "QueryRewriteConfig",
    "QueryRewriteNode",
    "ReRankerConfig",
    "ReRankerNode",
    "RetrievalEvaluationConfig",
    "RetrievalEvaluationNode",
    "RetryConfig",
    "SearchResult",
    "Session",
    "SessionManagementConfig",
    "SessionManagementNode",
    "StreamingGeneratorConfig",
    "StreamingGeneratorNode",
    "TopicShiftDetectorConfig",
    "TopicShiftDetectorNode",
    "Turn",
    "TurnAnnotationConfig",
    "TurnAnnotationNode",
    "UserFeedbackCollectionConfig",
    "UserFeedbackCollectionNode",
    "Vector",
    "VectorSearchConfig",
    "VectorSearchNode",
]
