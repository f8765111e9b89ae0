"""Whether the gateway lives, and whether what it depends on does."""

import asyncio

from fastapi import APIRouter, Response

from serve.http.dependencies import Served
from serve.http.responses import as_json

router = APIRouter()


@router.get("/healthz")
async def alive() -> dict[str, str]:
    return {"status": "ok"}


@router.get("/readyz")
async def ready(graph: Served) -> Response:
    """503 if a dependency is away that is required; each says for itself."""
    told = await asyncio.gather(*(dependency.presence() for dependency in graph.dependencies.values()))
    checks = dict(zip(graph.dependencies, told, strict=True))
    ok = all(each.there or not each.required for each in checks.values())
    body = {"ok": ok, "checks": {name: each.as_json() for name, each in checks.items()}}
    return as_json(body, 200 if ok else 503)
