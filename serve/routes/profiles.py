"""`/v1/profiles`: pipelines by name."""

from typing import Any

from fastapi import APIRouter

from rag_core.settings import shipped_profiles
from serve.bodies.openapi import shows
from serve.bodies.responses import Profiles
from serve.http.dependencies import Served, Who

router = APIRouter()


@router.get("/v1/profiles", responses=shows(Profiles))
def profiles(_who: Who, graph: Served) -> dict[str, Any]:
    """Those that are shipped, and the one that answers here."""
    serving = graph.settings.profile
    rows = [{"name": name, "serving": name == serving} for name in sorted({*shipped_profiles(), serving})]
    return {"data": rows, "next_cursor": None, "has_more": False}
