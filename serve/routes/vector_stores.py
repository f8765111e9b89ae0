"""`/v1/vector_stores/{collection}/search`: OpenAI's vector store search, with a collection as the vector store."""

from collections.abc import Sequence
from math import inf
from pathlib import PurePosixPath
from urllib.parse import unquote

from fastapi import APIRouter, Depends, Response

from rag_core.telemetry.operation import record_documents
from rag_core.types import Hit
from rag_core.wire.openai import FoundFile, SearchPage, TextPart
from serve.bodies.chat import RankingOptions, Search
from serve.bodies.fields import Text
from serve.bodies.openapi import BODY_PROBLEMS, MODEL_PROBLEMS, RATE_PROBLEMS, success_response
from serve.bodies.queries import build_query
from serve.bodies.requests import SearchScope
from serve.http.admission import take_search_turn
from serve.http.dependencies import CurrentProfiles, Reader
from serve.http.rate_limits import limit_searches
from serve.http.responses import json_response, server_timing
from serve.routes.retrieval import run_search
from serve.variants import SearchOptions

router = APIRouter()


@router.post(
    "/v1/vector_stores/{collection}/search",
    responses=success_response(SearchPage, BODY_PROBLEMS, MODEL_PROBLEMS, RATE_PROBLEMS),
    dependencies=[Depends(limit_searches), Depends(take_search_turn)],
)
async def search(collection: Text, body: Search, caller: Reader, profiles: CurrentProfiles) -> Response:
    """Returns hits, best first."""
    query = build_query(SearchScope(collection=collection, filters=body.filters), body.query, caller)
    variant = profiles.own.search_variant(SearchOptions())
    outcome = await run_search(variant, query, body.max_num_results, profiles.own.services)
    if outcome.timeout is not None:
        raise outcome.timeout  # this format cannot mark a page as partial
    hits = hits_from_threshold(outcome.hits, body.ranking_options)
    record_documents(hit.chunk.document_id for hit in hits)
    return json_response(describe_page(body.query, hits), headers=server_timing(outcome.stages))


def hits_from_threshold(hits: Sequence[Hit], options: RankingOptions | None) -> list[Hit]:
    threshold = -inf if options is None or options.score_threshold is None else options.score_threshold
    return [hit for hit in hits if hit.score >= threshold]


def describe_page(question: str, hits: Sequence[Hit]) -> SearchPage:
    return SearchPage(
        object="vector_store.search_results.page",
        search_query=[question],
        data=[
            FoundFile(
                file_id=hit.chunk.document_id,
                filename=PurePosixPath(unquote(hit.origin.uri)).name or hit.origin.title,
                score=round(hit.score, 6),
                attributes=_file_attributes(hit),
                content=[TextPart(type="text", text=hit.chunk.text)],
            )
            for hit in hits
        ],
        has_more=False,
        next_page=None,
    )


def _file_attributes(hit: Hit) -> dict[str, str | float | bool]:
    """The metadata that filters compare. OpenAI's attributes cannot be lists, so lists are joined with commas."""
    position = {key: hit.chunk.metadata[key] for key in ("page", "section") if key in hit.chunk.metadata}
    values = {**hit.origin.metadata, **position}
    return {key: value if isinstance(value, str | int | float) else ", ".join(value) for key, value in values.items()}
