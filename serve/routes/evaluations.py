"""`/v1/evaluations`: the runs of `rag evaluate` in RAG_HOME/runs of the gateway's machine, with their reports."""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import HTMLResponse

from jobs.stored_runs import StoredRun, find_stored_run, list_stored_runs
from rag_core.wire.evaluations import EvaluationReport, EvaluationRun, EvaluationRuns
from serve.bodies.openapi import success_response
from serve.http.cursors import PageParameters, build_listing
from serve.http.dependencies import CurrentServices, Evaluator
from serve.http.responses import json_response, prefers_html

router = APIRouter()

ABOVE_ALL_KEYS = "\U0010ffff"
"""The key before the first row: runs are listed by falling time."""
# A report quotes questions and documents, which are untrusted: the page must not reach anything, not even this API.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "img-src data:; frame-ancestors 'self'; sandbox allow-scripts",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Vary": "Accept",
}
RESPONSES = success_response(EvaluationReport)
RESPONSES[200]["content"] = {"text/html": {"schema": {"type": "string"}}}


@router.get("/v1/evaluations", responses=success_response(EvaluationRuns))
def evaluations(page: Annotated[PageParameters, Query()], caller: Evaluator, services: CurrentServices) -> Response:
    """Lists the runs, newest first: those that were promoted, and those that `rag evaluate --out` wrote there."""
    listing = build_listing(services, caller, "key", "evaluations")
    before = listing.decode_cursor(page.cursor, ABOVE_ALL_KEYS)
    runs = [run for run in list_stored_runs(caller.tenant) if run.key < before][: page.fetch_limit]
    rows, paging = listing.split_page([{"key": run.key, "run": run} for run in runs], page.limit)
    return json_response(EvaluationRuns(data=[EvaluationRun(**_describe_run(row["run"])) for row in rows], **paging))


@router.get("/v1/evaluations/{id:path}", responses=RESPONSES)
def evaluation(id: str, caller: Evaluator, accept: Annotated[str, Header()] = "*/*") -> Response:
    """Returns a run with its report.

    A client that accepts HTML but not JSON gets the report as a page, if the run has one.
    """
    run = find_stored_run(caller.tenant, id)
    page = run.read_html() if prefers_html(accept) else None
    if page is not None:
        return HTMLResponse(page, headers=HEADERS)
    return json_response(EvaluationReport(**_describe_run(run), report=run.report), headers={"Vary": "Accept"})


def _describe_run(run: StoredRun) -> dict[str, Any]:
    report = run.report
    return {
        "id": run.id,
        "dataset": report["dataset"],
        "split": report["split"],
        "profile": report["profile"],
        "pipeline_version": report.get("pipeline_version"),
        "created_at": run.created_at,
        "questions": report.get("questions"),
        "coverage": report.get("coverage"),
        "promoted": run.promoted,
    }
