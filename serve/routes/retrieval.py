"""`/v1/retrieve`: passages that answer a question."""

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
from serve.bodies.openapi import ASKS_MODELS, BODY, shows
from serve.bodies.queries import query
from serve.bodies.requests import Retrieve
from serve.bodies.responses import Retrieval
from serve.graph import Graph
from serve.http.cursors import Listing, listing
from serve.http.dependencies import Served, Who
from serve.http.problems import problem, problem_response
from serve.http.responses import as_json, public_stages, server_timing
from serve.readiness import because_of
from serve.variants import SearchVariant, check_profile, variants

router = APIRouter()

GRACE = 0.1
"""Seconds beyond what was allowed, in which the texts of what was ranked in time are looked up."""
RRF_K = 60


@router.post("/v1/retrieve", responses=shows(Retrieval, BODY, ASKS_MODELS))
@router.post("/v1/query", include_in_schema=False)
async def retrieve(asked: Retrieve, who: Who, graph: Served, request: Request) -> Response:
    """Best first. Pages are of one ranking, as long as its candidates; where the collection changes meanwhile, a hit
    may come twice, or not at all. Who is out of time gets what was found until then, and no further page."""
    check_profile(asked.profile, graph.settings)
    chosen = variants(request.app).search(asked.options)
    request.state.pipeline_version = chosen.pipeline_version
    page = Page(listing(graph, who, "place", "retrieval", _fingerprint(asked, chosen)), asked.cursor, asked.top_k)
    question = query(asked, asked.query, who, asked.conversation_id)
    found = await searched(chosen, question, page.wanted(chosen.depth), graph.corpus)
    shown = page.of(found.hits)
    body = retrieval_json(asked.query, shown.hits, found.stages, graph.settings.profile, found.seconds, asked.explain)
    body |= {"pipeline_version": chosen.pipeline_version, "next_cursor": shown.next_cursor}
    body["results"] = [{**each, "rank": each["rank"] + shown.behind} for each in body["results"]]
    if asked.profile:
        body["profile"]["selected_by"] = "explicit"
    if found.late is not None:
        if not found.hits:
            await refuse_without_store(graph, found.late)
        degraded = list(dict.fromkeys([*body["degraded"], found.late.stage]))
        body |= {"partial": True, "degraded": degraded, "next_cursor": None}
        if asked.on_timeout == "error" or not found.hits:
            return _late(found.late, body, request)
    return as_json(body, headers=server_timing(found.stages))


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """`late` is the stage that the time was over in, if it was: there are then only the `hits` that there were."""

    hits: Sequence[Hit]
    stages: Sequence[StageReport]
    seconds: float
    late: StageTimeoutError | None = None


async def searched(chosen: SearchVariant, question: Query, k: int, corpus: CorpusReader) -> Found:
    """Within the question's time and the profile's. A stage that is late where others are not is left out."""
    began, allowed = time.perf_counter(), min(question.timeout, chosen.limits.get("retrieve", inf))
    hits: Sequence[Hit] = ()
    late: StageTimeoutError | None = None
    with recording(allowed, chosen.limits) as stages:
        try:
            hits = await chosen.retriever.retrieve(question, k)
        except StageTimeoutError as error:
            late = error
        except RetrievalError:  # as when the time was over for every leg
            if time.perf_counter() - began < allowed:
                raise
    seconds = time.perf_counter() - began
    left_out = [report.stage for report in stages if report.error]
    if late is None and left_out and seconds >= allowed:
        late = StageTimeoutError(left_out[-1], allowed)
    if late is not None and not hits:
        hits = await _ranked_in_time(question, stages, k, corpus)
    return Found(hits=hits, stages=public_stages(stages), seconds=seconds, late=late)


async def _ranked_in_time(
    question: Query, stages: Sequence[StageReport], k: int, corpus: CorpusReader
) -> Sequence[Hit]:
    """As the stage ranked them that ranked last, scored by reciprocal rank. None if the store is late, too."""
    ranking = next((report.ranking for report in reversed(stages) if report.ranking), ())
    scored = [(id, 1 / (RRF_K + rank)) for rank, id in enumerate(ranking[:k], start=1)]
    if not scored:
        return ()
    try:
        with recording(GRACE):
            async with stage("fetch"), corpus.reading(question):
                return await corpus.hits(question, "fused", scored)
    except RagError:
        return ()


@dataclass(frozen=True, slots=True)
class Shown:
    """Of a ranking those hits that stand `behind` so many others."""

    hits: Sequence[Hit]
    behind: int
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Page:
    """A cursor names the hit that the page before ended with, and its rank then. What stands behind that hit now
    follows; what stands behind the rank, if the hit has gone."""

    order: Listing
    cursor: str
    size: int

    def wanted(self, depth: int) -> int:
        """How many hits tell whether there are more. Never so many that they would be chosen from others than those of
        the page before."""
        return max(self.size, depth if self.cursor else min(self.size + 1, depth))

    def of(self, hits: Sequence[Hit]) -> Shown:
        behind = self._behind(hits)
        end = behind + self.size
        more = self.order.cursor(f"{end} {hits[end - 1].chunk.id}") if len(hits) > end else None
        return Shown(hits[behind:end], behind, more)

    def _behind(self, hits: Sequence[Hit]) -> int:
        if not self.cursor:
            return 0
        rank, _, id = self.order.after(self.cursor, "").partition(" ")
        return next((place for place, hit in enumerate(hits, start=1) if str(hit.chunk.id) == id), int(rank))


def _fingerprint(asked: Retrieve, chosen: SearchVariant) -> str:
    """Equal for requests whose hits are of one ranking."""
    searched = [asked.query, asked.collection, asked.filters, asked.conversation_id, chosen.pipeline_version]
    return sha256(json_bytes(searched)).hexdigest()


async def refuse_without_store(graph: Graph, late: StageTimeoutError) -> None:
    """StoreError if that is what was waited for."""
    reason = await because_of(graph.dependencies["store"], late)
    if reason is not late:
        raise reason


def _late(late: StageTimeoutError, body: Mapping[str, Any], request: Request) -> Response:
    found = {"degraded": body["degraded"], "partial_results": body["results"]}
    return problem_response({**problem(late, request.url.path, request.state.correlation_id), **found})
