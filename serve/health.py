"""Whether the gateway lives, and whether what it depends on does."""

from typing import Any

from fastapi import APIRouter, Response
from starlette.concurrency import run_in_threadpool

from rag_core.errors import RagError
from serve.graph import Graph
from serve.requests import Served
from serve.responses import as_json

router = APIRouter()


@router.get("/healthz")
async def alive() -> dict[str, str]:
    return {"status": "ok"}


@router.get("/readyz")
async def ready(graph: Served) -> Response:
    """503 if a dependency is away; each says for itself."""
    checks = {"store": await _checked(graph)}
    status = 200 if all(check["ok"] for check in checks.values()) else 503
    return as_json({"ok": status == 200, "checks": checks}, status)


async def _checked(graph: Graph) -> dict[str, Any]:
    try:
        await run_in_threadpool(_ask_store, graph)
    except RagError as error:
        return {"ok": False, "reason": str(error)}
    return {"ok": True}


def _ask_store(graph: Graph) -> None:
    with graph.postgres.connect() as connection:
        connection.execute("select 1")
