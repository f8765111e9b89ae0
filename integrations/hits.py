"""The metadata of a hit, as the other libraries store it with a text."""

from typing import Any

from rag_core.wire.retrieval import Hit


def hit_metadata(hit: Hit) -> dict[str, Any]:
    """The metadata of the document, and the members of the hit, which replace equal keys. All values are JSON.

    `score` is the hit's; `start` and `end` are its place in the document's text.
    """
    members = hit.model_dump(mode="json", exclude={"text", "metadata", "explain"}, exclude_none=True)
    return {**hit.metadata, **members}
