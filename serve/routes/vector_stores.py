"""OpenAI's search of a vector store, which here is a collection."""

from collections.abc import Sequence
from math import inf
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote

from fastapi import APIRouter, Request, Response

from rag_core.types import Hit
from serve.bodies.chat import RankingOptions, Search
from serve.bodies.openapi import ASKS_MODELS, BODY, shows
from serve.bodies.queries import query
from serve.bodies.requests import Asked, Text
from serve.bodies.responses import SearchPage
from serve.http.dependencies import Served, Who
from serve.http.responses import as_json, server_timing
from serve.routes.retrieval import searched
from serve.variants import SearchOptions, variants

router = APIRouter()


@router.post("/v1/vector_stores/{collection}/search", responses=shows(SearchPage, BODY, ASKS_MODELS))
async def search(collection: Text, asked: Search, who: Who, graph: Served, request: Request) -> Response:
    """Passages, best first."""
    question = query(Asked(collection=collection, filters=asked.filters), asked.query, who)
    chosen = variants(request.app).search(SearchOptions())
    found = await searched(chosen, question, asked.max_num_results, graph.corpus)
    if found.late is not None:
        raise found.late
    passing = above(found.hits, asked.ranking_options)
    return as_json(search_json(asked.query, passing), headers=server_timing(found.stages))


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
