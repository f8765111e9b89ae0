"""Options of a request that only some callers can use: a weaker protection, and the ingestion of many documents."""

from collections.abc import Mapping

from rag_core.config import Settings
from rag_core.storage.queue import IngestRequest
from serve.authentication.caller import Caller
from serve.variants import GuardMode

STRENGTHS: Mapping[GuardMode, int] = {"off": 0, "flag": 1, "block": 2, "regenerate": 2}


def check_guard(caller: Caller, requested: GuardMode | None, configured: GuardMode) -> None:
    """Raises ScopeError if the guard that the caller requests is weaker than the profile's one, unless it can
    override policies."""
    if requested and STRENGTHS[requested] < STRENGTHS[configured]:
        caller.require("policy:override")


def check_bulk(caller: Caller, job: IngestRequest, settings: Settings) -> None:
    """Raises ScopeError if the job needs `ingest:bulk` and the caller lacks it: it has a location, or many
    documents."""
    if job.locations or len(job.documents) > settings.ingestion.bulk_documents:
        caller.require("ingest:bulk")
