"""`/healthz`: the state of the gateway's process. `/readyz`: the state of its dependencies."""

import asyncio

from fastapi import APIRouter, Response

from serve.http.dependencies import CurrentServices
from serve.http.responses import json_response

router = APIRouter()


@router.get("/healthz")
async def alive() -> dict[str, str]:
    return {"status": "ok"}


@router.get("/readyz")
async def ready(services: CurrentServices) -> Response:
    """Returns the status of each dependency; responds with 503 if a required one is unavailable."""
    statuses = await asyncio.gather(*(dependency.status() for dependency in services.dependencies.values()))
    ok = all(status.ok or not status.required for status in statuses)
    checks = {name: status.to_json() for name, status in zip(services.dependencies, statuses, strict=True)}
    return json_response({"ok": ok, "checks": checks}, 200 if ok else 503)
