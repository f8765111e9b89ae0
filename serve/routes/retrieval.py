"""`/v1/retrieve`: the hits that best answer a question."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from math import inf

from fastapi import APIRouter, Depends, Request, Response

from rag_core.errors import RagError, RetrievalError, StageTimeoutError
from rag_core.retrieval.query.understood import ConversationRetriever
from rag_core.stage import attempt, recording, skip_stages, stage
from rag_core.storage.corpus import CorpusReader
from rag_core.telemetry.operation import record_documents
from rag_core.types import Hit, Query, StageReport
from rag_core.wire.retrieval import Profile, Retrieval
from rag_core.wire.shape import json_bytes
from serve.bodies.openapi import BODY_PROBLEMS, MODEL_PROBLEMS, RATE_PROBLEMS, success_response
from serve.bodies.queries import build_query
from serve.bodies.requests import Retrieve
from serve.http.admission import take_search_turn
from serve.http.cursors import Listing, build_listing
from serve.http.dependencies import CurrentProfiles, Reader
from serve.http.problems import describe_problem, problem_response
from serve.http.rate_limits import limit_searches
from serve.http.responses import json_response, public_stages, server_timing
from serve.readiness import explain_timeout
from serve.services import Services
from serve.variants import SearchVariant

router = APIRouter()

GRACE_SECONDS = 0.1
"""Seconds after a timeout in which the texts of chunks that are already ranked can still be fetched."""
RRF_K = 60


@router.post(
    "/v1/retrieve",
    responses=success_response(Retrieval, BODY_PROBLEMS, MODEL_PROBLEMS, RATE_PROBLEMS),
    dependencies=[Depends(limit_searches), Depends(take_search_turn)],
)
async def retrieve(body: Retrieve, caller: Reader, profiles: CurrentProfiles, request: Request) -> Response:
    """Returns hits, best first.

    Pages divide one ranking, whose length is `candidates` or the profile's depth. If the collection changes between two
    pages, a hit can occur twice or be missing. After a timeout the response has the hits so far, and no next page.
    """
    variants = await profiles.find(body.profile)
    services, variant = variants.services, variants.search_variant(body.options)
    request.state.components = variant.components
    listing = build_listing(services, caller, "rank", "retrieval", _ranking_fingerprint(body, variant))
    paging = HitPaging(listing, body.cursor, body.top_k)
    query = build_query(body, body.query, caller, body.conversation_id)
    outcome = await run_search(variant, query, paging.fetch_limit(variant.depth), services)
    page = paging.select(outcome.hits)
    record_documents(hit.chunk.document_id for hit in page.hits)
    return await _build_response(body, outcome, page, variant, services, request)


def _ranking_fingerprint(body: Retrieve, variant: SearchVariant) -> str:
    """A hash that is equal for requests with the same ranking."""
    parts = [body.query, body.collection, body.filters, body.conversation_id, variant.pipeline_version]
    return sha256(json_bytes(parts)).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOutcome:
    """The result of a search. If it timed out, `timeout` names the stage that it stopped at; `hits` are incomplete.

    `standalone` is the question as it was searched.
    """

    hits: Sequence[Hit]
    standalone: str
    stages: Sequence[StageReport]
    seconds: float
    timeout: StageTimeoutError | None = None


async def run_search(variant: SearchVariant, query: Query, k: int, services: Services) -> SearchOutcome:
    """Searches within the time limits of the query and of the profile, after the messages of the query's session.

    If a leg of a hybrid retriever, or a reranker, exceeds its own limit, the search continues without it. If the whole
    search, or a stage that it needs, runs out of time, the outcome has the hits so far.

    Raises RetrievalError if the search fails earlier.
    """
    started, time_limit = time.perf_counter(), min(query.timeout, variant.limits.get("retrieve", inf))
    hits: Sequence[Hit] = ()
    timeout: StageTimeoutError | None = None
    with recording(time_limit, variant.limits) as stages:
        skip_stages(variant.skipped)
        try:
            query = await _interpret_query(query, services)
            hits = await variant.retriever.retrieve(query, k)
        except StageTimeoutError as error:
            timeout = error
        except RetrievalError:  # every leg failed, possibly because of the timeout
            if time.perf_counter() - started < time_limit:
                raise
    seconds = time.perf_counter() - started
    failed_stages = [report.stage for report in stages if report.error]
    # the deadline cancelled stages without a StageTimeoutError, so hits can be missing: report the last failed stage
    if timeout is None and failed_stages and seconds >= time_limit:
        timeout = StageTimeoutError(failed_stages[-1], time_limit)
    if timeout is not None and not hits:
        hits = await _fetch_ranked_hits(query, stages, k, services.corpus)
    reports = public_stages(stages)
    return SearchOutcome(hits=hits, standalone=query.text, stages=reports, seconds=seconds, timeout=timeout)


async def _interpret_query(query: Query, services: Services) -> Query:
    """The query as the messages of its session make it understood; alone if there are none, or if the store fails."""
    if not query.session_id:
        return query
    stored = services.conversations.history(query, services.settings.answering.history)
    history = tuple(await attempt("history", stored, otherwise=[]))
    retriever = ConversationRetriever(services.understander, services.retriever)
    return await retriever.rewrite(replace(query, history=history))


async def _fetch_ranked_hits(
    query: Query, stages: Sequence[StageReport], k: int, corpus: CorpusReader
) -> Sequence[Hit]:
    """The hits of the last complete ranking; none if the store fails or times out too.

    Reports hold ids without scores, so reciprocal ranks stand in. The name `fused` keeps them out of the hit's
    `retrievers`.
    """
    ranking = next((report.ranking for report in reversed(stages) if report.ranking), ())
    scored = [(id, 1 / (RRF_K + rank)) for rank, id in enumerate(ranking[:k], start=1)]
    if not scored:
        return ()
    try:
        with recording(GRACE_SECONDS):
            async with stage("fetch"), corpus.reading(query):
                return await corpus.fetch_hits(query, "fused", scored)
    except RagError:
        return ()


@dataclass(frozen=True, slots=True)
class HitPage:
    """The hits of one page. `offset` is the number of hits before them."""

    hits: Sequence[Hit]
    offset: int
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class HitPaging:
    """The pages of a ranking. A cursor names the last hit of the previous page and its rank.

    The page begins after that hit, or after that rank if the hit is no longer in the ranking.
    """

    listing: Listing
    cursor: str
    size: int

    def fetch_limit(self, depth: int) -> int:
        """The number of hits to retrieve.

        The first page retrieves one hit more than it shows, so that the response knows if another follows. Later pages
        retrieve `depth` hits. No page retrieves more than `depth`, unless it is itself larger. Beyond `depth` the
        search reads other candidates, and its pages would not fit the earlier ones.
        """
        return max(self.size, depth if self.cursor else min(self.size + 1, depth))

    def select(self, hits: Sequence[Hit]) -> HitPage:
        """The page after the cursor, or the first page."""
        offset = 0
        if self.cursor:
            rank, _, id = self.listing.decode_cursor(self.cursor, "").partition(" ")
            positions = (position for position, hit in enumerate(hits, start=1) if str(hit.chunk.id) == id)
            offset = next(positions, int(rank))
        end = offset + self.size
        next_cursor = self.listing.encode_cursor(f"{end} {hits[end - 1].chunk.id}") if len(hits) > end else None
        return HitPage(hits[offset:end], offset, next_cursor)


async def _build_response(
    body: Retrieve,
    outcome: SearchOutcome,
    page: HitPage,
    variant: SearchVariant,
    services: Services,
    request: Request,
) -> Response:
    """The response with the page. After a timeout it is marked as partial, or a problem if `on_timeout` is `error`.

    A timeout without hits is always a problem. Raises StoreError instead of a timeout without hits if the store is
    unreachable.
    """
    result = Retrieval.describe(
        body.query,
        page.hits,
        outcome.stages,
        seconds=outcome.seconds,
        profile=Profile.describe(services.settings, requested=bool(body.profile)),
        pipeline_version=variant.pipeline_version,
        standalone=outcome.standalone,
        explain=body.explain,
        offset=page.offset,
        next_cursor=page.next_cursor,
    )
    if outcome.timeout is None:
        return json_response(result, headers=server_timing(outcome.stages))
    if not outcome.hits:
        await raise_if_store_unreachable(services, outcome.timeout)
    degraded = list(dict.fromkeys([*result.degraded, outcome.timeout.stage]))
    if body.on_timeout == "error" or not outcome.hits:
        problem = describe_problem(outcome.timeout, request.url.path, request.state.correlation_id)
        partial = {"degraded": degraded, "partial_results": result.results}
        return problem_response(problem.model_copy(update=partial))
    reasons = {outcome.timeout.stage: str(outcome.timeout), **result.degraded_reasons}
    partial = {"degraded": degraded, "degraded_reasons": reasons, "partial": True, "next_cursor": None}
    return json_response(result.model_copy(update=partial), headers=server_timing(outcome.stages))


async def raise_if_store_unreachable(services: Services, timeout: StageTimeoutError) -> None:
    """Raises StoreError if the stage timed out because the store is unreachable."""
    error = await explain_timeout(services.dependencies["store"], timeout)
    if error is not timeout:
        raise error
