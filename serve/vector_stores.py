"""OpenAI's search of a vector store, which here is a collection."""

from collections.abc import Sequence
from math import inf
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote

from fastapi import APIRouter, Response

from rag_core.stage import recording
from rag_core.types import Hit
from serve.chat_schemas import RankingOptions, Search
from serve.requests import Served, Who, query
from serve.responses import as_json
from serve.schemas import Asked, Text

router = APIRouter()


@router.post("/v1/vector_stores/{collection}/search")
async def search(collection: Text, asked: Search, who: Who, graph: Served) -> Response:
    """Passages, best first."""
    question = query(Asked(collection=collection, filters=asked.filters), asked.query, who)
    with recording(question.timeout, graph.limits):
        hits = await graph.retriever.retrieve(question, asked.max_num_results)
    passing = above(hits, asked.ranking_options)
    return as_json(search_json(asked.query, passing))


def above(hits: Sequence[Hit], options: RankingOptions | None) -> list[Hit]:
    threshold = -inf if options is None or options.score_threshold is None else options.score_threshold
    return [hit for hit in hits if hit.score >= threshold]


def search_json(question: str, hits: Sequence[Hit]) -> dict[str, Any]:
    return {
        "object": "vector_store.search_results.page",
        "search_query": [question],
        "data": [_found(hit) for hit in hits],
        "has_more": False,
        "next_page": None,
    }


def _found(hit: Hit) -> dict[str, Any]:
    return {
        "file_id": hit.chunk.document_id,
        "filename": _filename(hit.origin.uri) or hit.origin.title,
        "score": round(hit.score, 6),
        "attributes": _attributes(hit),
        "content": [{"type": "text", "text": hit.chunk.text}],
    }


def _filename(uri: str) -> str:
    return PurePosixPath(unquote(uri)).name


def _attributes(hit: Hit) -> dict[str, str | float | bool]:
    """What filters compare. OpenAI's are no lists: those are joined."""
    own = {key: hit.chunk.metadata[key] for key in ("page", "section") if key in hit.chunk.metadata}
    values = {**hit.origin.metadata, **own}
    return {key: value if isinstance(value, str | int | float) else ", ".join(value) for key, value in values.items()}
