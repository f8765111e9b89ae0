"""`/v1/retrieve`: passages that answer a question."""

import time

from fastapi import APIRouter, Response

from rag_core.stage import recording
from rag_core.wire import retrieval_json
from serve.requests import Served, Who, query
from serve.responses import as_json
from serve.schemas import Retrieve

router = APIRouter()


@router.post("/v1/retrieve")
@router.post("/v1/query", include_in_schema=False)
async def retrieve(asked: Retrieve, who: Who, graph: Served) -> Response:
    """Best first."""
    began, question = time.perf_counter(), query(asked, asked.query, who)
    with recording(question.timeout, graph.limits) as stages:
        hits = await graph.retriever.retrieve(question, asked.top_k)
    took = time.perf_counter() - began
    body = retrieval_json(asked.query, hits, stages, graph.settings, took, asked.explain)
    return as_json(body)
