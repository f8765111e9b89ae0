"""`/healthz`: the state of the gateway's process. `/readyz`: the state of its dependencies."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from serve.http.caller import has_credentials
from serve.http.dependencies import CurrentServices
from serve.http.draining import is_draining
from serve.http.responses import json_response

router = APIRouter()


@router.get("/healthz")
async def alive() -> dict[str, str]:
    return {"status": "ok"}


# In /openapi.json an empty requirement makes the credentials optional.
@router.get("/readyz", openapi_extra={"security": [{}]})
async def ready(
    services: CurrentServices, request: Request, is_known: Annotated[bool, Depends(has_credentials)]
) -> Response:
    """Responds with 503 if a required dependency is unavailable. Callers with credentials see the status of each.

    Also responds with 503, and `draining`, if the gateway is about to stop: it still serves, but no longer for long.
    """
    if is_draining(request.app):
        return json_response({"ok": False, "draining": True}, 503)
    statuses = await asyncio.gather(*(dependency.status() for dependency in services.dependencies.values()))
    ok = all(status.ok or not status.required for status in statuses)
    checks = {name: status.to_json() for name, status in zip(services.dependencies, statuses, strict=True)}
    return json_response({"ok": ok, **({"checks": checks} if is_known else {})}, 200 if ok else 503)
