"""The error for a collection that does not exist, with the name that was likely meant."""

from collections.abc import Sequence

from rag_core.errors import NotFoundError, suggest_name

COLLECTION_NAMES = "select name from collections where tenant = %(tenant)s order by name"


def missing_collection_error(name: str, names: Sequence[str]) -> NotFoundError:
    """`names` are the tenant's collections."""
    advice = "`rag collections list` shows the existing ones" if names else "`rag ingest FOLDER` creates one"
    return NotFoundError(f"no collection {name!r}; {advice}{suggest_name(name, names)}")
