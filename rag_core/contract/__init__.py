"""The pipeline as plain functions: parse, chunk, embed, store, index; prepare, search, merge, rerank; answer.

The functions use the default profile and the settings of the environment. They raise built-in exceptions: ValueError
for a wrong argument, FileNotFoundError, and RuntimeError for work that fails. Only temporary failures of a model, such
as a busy server or a lost connection, are retried.
"""

from rag_core.contract.chunk import RetrievedChunk
from rag_core.contract.engine import Engine
from rag_core.contract.generation import Citation, GeneratedResponse, generate_answer
from rag_core.contract.indexing import chunk_text, embed_chunks, parse_pdf, store_document
from rag_core.contract.orchestration import chat_with_documents, index_document, search_documents
from rag_core.contract.post_retrieval import rerank_chunks
from rag_core.contract.pre_retrieval import expand_query, get_query_embedding, preprocess_query
from rag_core.contract.retrieval import (
    QueryOptions,
    RetrievalResult,
    graph_search,
    hybrid_search,
    keyword_search,
    vector_search,
)

__all__ = [
    "Citation",
    "Engine",
    "GeneratedResponse",
    "QueryOptions",
    "RetrievalResult",
    "RetrievedChunk",
    "chat_with_documents",
    "chunk_text",
    "embed_chunks",
    "expand_query",
    "generate_answer",
    "get_query_embedding",
    "graph_search",
    "hybrid_search",
    "index_document",
    "keyword_search",
    "parse_pdf",
    "preprocess_query",
    "rerank_chunks",
    "search_documents",
    "store_document",
    "vector_search",
]
