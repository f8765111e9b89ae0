"""`/v1/retrieve`: the passages that best answer a question."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import inf
from typing import Any

from fastapi import APIRouter, Request, Response

from rag_core.errors import RagError, RetrievalError, StageTimeoutError
from rag_core.stage import recording, stage
from rag_core.storage.corpus import CorpusReader
from rag_core.types import Hit, Query, StageReport
from rag_core.wire import json_bytes, retrieval_json
from serve.bodies.openapi import BODY_PROBLEMS, MODEL_PROBLEMS, success_response
from serve.bodies.queries import build_query
from serve.bodies.requests import Retrieve
from serve.bodies.responses import Retrieval
from serve.graph import Graph
from serve.http.cursors import Listing, build_listing
from serve.http.dependencies import CurrentCaller, CurrentGraph
from serve.http.problems import problem_body, problem_response
from serve.http.responses import json_response, public_stages, server_timing
from serve.readiness import explain_timeout
from serve.variants import SearchVariant, check_profile, current_variants

router = APIRouter()

GRACE = 0.1
"""Seconds after a timeout in which the texts of the chunks that were ranked in time are fetched."""
RRF_K = 60


@router.post("/v1/retrieve", responses=success_response(Retrieval, BODY_PROBLEMS, MODEL_PROBLEMS))
@router.post("/v1/query", include_in_schema=False)
async def retrieve(body: Retrieve, caller: CurrentCaller, graph: CurrentGraph, request: Request) -> Response:
    """Returns hits, best first. Pages divide one ranking, as deep as its candidates.

    If the collection changes between two pages, a hit can occur twice or be missing. After a timeout the hits so far
    are returned, without a further page.
    """
    check_profile(body.profile, graph.settings)
    variant = current_variants(request.app).search_variant(body.options)
    request.state.pipeline_version = variant.pipeline_version
    listing = build_listing(graph, caller, "rank", "retrieval", _ranking_fingerprint(body, variant))
    paging = HitPaging(listing, body.cursor, body.top_k)
    query = build_query(body, body.query, caller, body.conversation_id)
    outcome = await run_search(variant, query, paging.fetch_limit(variant.depth), graph.corpus)
    return await _build_response(body, outcome, paging.select(outcome.hits), graph, request)


def _ranking_fingerprint(body: Retrieve, variant: SearchVariant) -> str:
    """Equal for requests that produce the same ranking."""
    parts = [body.query, body.collection, body.filters, body.conversation_id, variant.pipeline_version]
    return sha256(json_bytes(parts)).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOutcome:
    """The result of a search. If it timed out, `timeout` is the error of the last stage, and `hits` are partial."""

    hits: Sequence[Hit]
    stages: Sequence[StageReport]
    seconds: float
    timeout: StageTimeoutError | None = None


async def run_search(variant: SearchVariant, query: Query, k: int, corpus: CorpusReader) -> SearchOutcome:
    """Searches within the time limits of the query and of the profile.

    A stage that times out while others do not is skipped. Raises RetrievalError if the search fails in time.
    """
    started, time_limit = time.perf_counter(), min(query.timeout, variant.limits.get("retrieve", inf))
    hits: Sequence[Hit] = ()
    timeout: StageTimeoutError | None = None
    with recording(time_limit, variant.limits) as stages:
        try:
            hits = await variant.retriever.retrieve(query, k)
        except StageTimeoutError as error:
            timeout = error
        except RetrievalError:  # every leg failed, perhaps because of the timeout
            if time.perf_counter() - started < time_limit:
                raise
    seconds = time.perf_counter() - started
    failed_stages = [report.stage for report in stages if report.error]
    if timeout is None and failed_stages and seconds >= time_limit:
        timeout = StageTimeoutError(failed_stages[-1], time_limit)
    if timeout is not None and not hits:
        hits = await _fetch_ranked_hits(query, stages, k, corpus)
    return SearchOutcome(hits=hits, stages=public_stages(stages), seconds=seconds, timeout=timeout)


async def _fetch_ranked_hits(
    query: Query, stages: Sequence[StageReport], k: int, corpus: CorpusReader
) -> Sequence[Hit]:
    """The hits of the last ranking that was completed, scored by reciprocal rank; none if the store times out too."""
    ranking = next((report.ranking for report in reversed(stages) if report.ranking), ())
    scored = [(id, 1 / (RRF_K + rank)) for rank, id in enumerate(ranking[:k], start=1)]
    if not scored:
        return ()
    try:
        with recording(GRACE):
            async with stage("fetch"), corpus.reading(query):
                return await corpus.fetch_hits(query, "fused", scored)
    except RagError:
        return ()


@dataclass(frozen=True, slots=True)
class PageOfHits:
    """The hits of one page. `offset` is the number of hits before them."""

    hits: Sequence[Hit]
    offset: int
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class HitPaging:
    """Divides a ranking into pages. A cursor names the last hit of the previous page, and the rank that it had.

    The page begins after that hit; if the hit has disappeared, it begins after the rank.
    """

    listing: Listing
    cursor: str
    size: int

    def fetch_limit(self, depth: int) -> int:
        """The number of hits to retrieve, one more than the page has if possible, to see if another page follows.

        It never exceeds the ranking's depth unless the page does: with other candidates, pages would not match.
        """
        return max(self.size, depth if self.cursor else min(self.size + 1, depth))

    def select(self, hits: Sequence[Hit]) -> PageOfHits:
        offset = 0
        if self.cursor:
            rank, _, id = self.listing.decode_cursor(self.cursor, "").partition(" ")
            positions = (position for position, hit in enumerate(hits, start=1) if str(hit.chunk.id) == id)
            offset = next(positions, int(rank))
        end = offset + self.size
        next_cursor = self.listing.encode_cursor(f"{end} {hits[end - 1].chunk.id}") if len(hits) > end else None
        return PageOfHits(hits[offset:end], offset, next_cursor)


async def _build_response(
    body: Retrieve, outcome: SearchOutcome, page: PageOfHits, graph: Graph, request: Request
) -> Response:
    """The page, or after a timeout a partial page or a problem.

    A timeout without hits is always a problem. Raises StoreError if the store is the reason.
    """
    result = retrieval_json(
        body.query, page.hits, outcome.stages, graph.settings.profile, outcome.seconds, body.explain
    )
    result["results"] = [{**hit, "rank": hit["rank"] + page.offset} for hit in result["results"]]
    result |= {"pipeline_version": request.state.pipeline_version, "next_cursor": page.next_cursor}
    if body.profile:
        result["profile"]["selected_by"] = "explicit"
    if outcome.timeout is None:
        return json_response(result, headers=server_timing(outcome.stages))
    if not outcome.hits:
        await raise_if_store_unreachable(graph, outcome.timeout)
    result["degraded"] = list(dict.fromkeys([*result["degraded"], outcome.timeout.stage]))
    result |= {"partial": True, "next_cursor": None}
    if body.on_timeout == "error" or not outcome.hits:
        return _timeout_response(outcome.timeout, result, request)
    return json_response(result, headers=server_timing(outcome.stages))


async def raise_if_store_unreachable(graph: Graph, timeout: StageTimeoutError) -> None:
    """Raises StoreError if the stage timed out because the store is unreachable."""
    error = await explain_timeout(graph.dependencies["store"], timeout)
    if error is not timeout:
        raise error


def _timeout_response(timeout: StageTimeoutError, result: Mapping[str, Any], request: Request) -> Response:
    problem = problem_body(timeout, request.url.path, request.state.correlation_id)
    partial = {"degraded": result["degraded"], "partial_results": result["results"]}
    return problem_response({**problem, **partial})
