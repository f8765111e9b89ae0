"""The whole pipeline: a file becomes a stored document, a question becomes chunks or an answer."""

from collections.abc import Mapping
from pathlib import Path
from uuid import UUID

from rag_core.config import find_reranked_retriever
from rag_core.contract.chunk import RetrievedChunk
from rag_core.contract.generation import GeneratedResponse, generate_answer
from rag_core.contract.indexing import (
    CHUNK_SIZE,
    OVERLAP,
    build_character_chunker,
    builtin_errors,
    collection_name,
    embed_chunks,
    parse_pdf_document,
    split_document,
    store_chunks,
)
from rag_core.contract.post_retrieval import rerank_chunks
from rag_core.contract.pre_retrieval import preprocess_query
from rag_core.contract.retrieval import DEFAULT_OPTIONS, QueryOptions, hybrid_search
from rag_core.contract.stage_log import count_results, log_stage
from rag_core.contract.vector_store.port import check_top_k
from rag_core.settings import load_settings

NOTHING_FOUND = "Nothing was found for this question."


@log_stage("index_document")
def index_document(name: str, file_path: str | Path, options: Mapping[str, int] | None = None) -> UUID:
    """Parses, chunks, embeds and stores a PDF and returns the document's id. Chunks have their pages and sections.

    `options` can have `chunk_size` and `overlap`. Raises the errors of `parse_pdf`, `chunk_text`, `embed_chunks` and
    `store_document`.
    """
    path, sizes = Path(file_path), {"chunk_size": CHUNK_SIZE, "overlap": OVERLAP, **(options or {})}
    if unknown := sorted(sizes.keys() - {"chunk_size", "overlap"}):
        raise ValueError(f"options must be chunk_size or overlap, got {', '.join(unknown)}")
    chunker, document = build_character_chunker(**sizes), parse_pdf_document(path)
    collection_name(name)
    chunks = split_document(chunker, document)
    vectors = dict(embed_chunks([chunk.text for chunk in chunks]))
    embedded = [chunk for chunk in chunks if chunk.text in vectors]
    count_results(chunks=len(embedded))
    metadata = {"filename": path.name, "file_path": str(path), "file_size": path.stat().st_size}
    return store_chunks(name, document, embedded, [vectors[chunk.text] for chunk in embedded], metadata)


@log_stage("search_documents")
def search_documents(name: str, question: str, options: QueryOptions = DEFAULT_OPTIONS) -> list[RetrievedChunk]:
    """The best `options.top_k` chunks of `hybrid_search` for the preprocessed question.

    If the profile has a reranker, it reranks them by the original question. Raises the errors of `hybrid_search`.
    """
    with builtin_errors(f"{name} cannot be searched"):
        check_top_k(options.top_k)
    chunks = hybrid_search(name, preprocess_query(question, options.expand_query), options).chunks
    if options.enable_reranking and find_reranked_retriever(load_settings().retrieval):
        best = rerank_chunks(question, chunks, options.top_k)
    else:
        best = chunks[: options.top_k]
    count_results(results=len(best))
    return best


@log_stage("chat_with_documents")
def chat_with_documents(name: str, question: str, options: QueryOptions = DEFAULT_OPTIONS) -> GeneratedResponse:
    """Answers the original question from the chunks that `search_documents` finds, or reports that it found nothing.

    Raises the errors of `search_documents` and `generate_answer`.
    """
    chunks = search_documents(name, question, options)
    count_results(results=len(chunks))
    if not chunks:
        return GeneratedResponse(answer_text=NOTHING_FOUND)
    return generate_answer(question, chunks)
