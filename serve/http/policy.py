"""Options of a request that only some callers can use: a weaker protection, and the ingestion of many documents."""

from collections.abc import Mapping

from rag_core.config import Settings
from rag_core.storage.queue import IngestRequest
from serve.authentication.caller import Caller
from serve.variants import GuardMode

STRENGTHS: Mapping[GuardMode, int] = {"off": 0, "flag": 1, "block": 2, "regenerate": 2}


def check_guard(
    caller: Caller, requested: GuardMode | None, configured: GuardMode, replaced: GuardMode = "off"
) -> None:
    """Raises ScopeError if the caller gets a weaker guard than without its wishes, unless it can override policies.

    `configured` is that of the profile that answers. `replaced` is that of the gateway's own profile if the caller
    named another one.
    """
    if STRENGTHS[requested or configured] < max(STRENGTHS[configured], STRENGTHS[replaced]):
        caller.require("policy:override")


def check_bulk(caller: Caller, job: IngestRequest, settings: Settings) -> None:
    """Raises ScopeError if the job needs `ingest:bulk` and the caller lacks it: it has a location, or many
    documents."""
    if job.locations or len(job.documents) > settings.ingestion.bulk_documents:
        caller.require("ingest:bulk")
