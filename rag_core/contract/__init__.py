"""The pipeline as plain functions: parse, chunk, embed, store, index; search, merge, rerank.

They work with the settings of the environment and the default profile, and raise what Python has of its own:
ValueError for what is asked wrongly, FileNotFoundError, and RuntimeError for what cannot be done. Only what may pass
by itself is tried again (a model that is busy or cannot be reached for the moment); nothing else is.
"""

from rag_core.contract.ingest import chunk_text, embed_chunks, index_document, parse_pdf, store_document
from rag_core.contract.search import (
    QueryOptions,
    RetrievalResult,
    RetrievedChunk,
    get_query_embedding,
    graph_search,
    hybrid_search,
    keyword_search,
    rerank_chunks,
    search_documents,
    vector_search,
)

__all__ = [
    "QueryOptions",
    "RetrievalResult",
    "RetrievedChunk",
    "chunk_text",
    "embed_chunks",
    "get_query_embedding",
    "graph_search",
    "hybrid_search",
    "index_document",
    "keyword_search",
    "parse_pdf",
    "rerank_chunks",
    "search_documents",
    "store_document",
    "vector_search",
]
