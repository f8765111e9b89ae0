"""A component for Haystack, which the extra `[haystack]` installs."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Self

from integrations.doors import Door, Search, Source, open_door, search_in_thread
from integrations.hits import hit_metadata
from rag_core.errors import FilterError, MissingExtraError, UsageError
from rag_core.types import DEFAULT_COLLECTION
from rag_core.wire.responses import API_KEY_VARIABLE
from rag_core.wire.retrieval import Hit

try:
    from haystack import Document, component, default_from_dict, default_to_dict
    from haystack.utils import Secret
except ModuleNotFoundError as error:
    raise MissingExtraError("the extra [haystack] is not installed: pip install 'rag-on-ray[haystack]'") from error

_COMPARISONS = {
    "==": "eq",
    "!=": "ne",
    ">": "gt",
    ">=": "gte",
    "<": "lt",
    "<=": "lte",
    "in": "in",
    "not in": "nin",
}
"""Our comparisons by those of Haystack."""


@component
class RagRetriever:
    """The hits of a knowledge base as documents, best first."""

    def __init__(
        self,
        source: Source,
        api_key: Secret | None = None,
        collection: str = DEFAULT_COLLECTION,
        top_k: int = 10,
        filters: dict[str, Any] | None = None,
    ) -> None:
        """`source` is a gateway's URL, a YAML file of settings, a Postgres DSN, `embedded`, or a door.

        Without `api_key`, the environment variable RAG_API_KEY has the key if there is one. `filters` are those of
        Haystack.
        """
        self.source, self.collection, self.top_k, self.filters = source, collection, top_k, filters
        self.api_key = api_key or Secret.from_env_var(API_KEY_VARIABLE, strict=False)

    def warm_up(self) -> None:
        """Opens the source, unless it is open."""
        _ = self._door

    def to_dict(self) -> dict[str, Any]:
        """Raises UsageError if the source is a door, which no file can hold."""
        if not isinstance(self.source, str):
            raise UsageError("a pipeline can be written to a file only if `source` is a text, not an open door")
        return default_to_dict(
            self,
            source=self.source,
            api_key=self.api_key,
            collection=self.collection,
            top_k=self.top_k,
            filters=self.filters,
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        restored: Self = default_from_dict(cls, data)
        return restored

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Returns the `documents`. `filters` and `top_k` replace those of the component."""
        hits = self._door.search(self._build_search(query, filters, top_k))
        return {"documents": [build_document(hit) for hit in hits]}

    @component.output_types(documents=list[Document])
    async def run_async(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Returns the same as `run`."""
        hits = await search_in_thread(self._door, self._build_search(query, filters, top_k))
        return {"documents": [build_document(hit) for hit in hits]}

    @cached_property
    def _door(self) -> Door:
        return open_door(self.source, self.api_key.resolve_value() or "")

    def _build_search(self, query: str, filters: dict[str, Any] | None, top_k: int | None) -> Search:
        filters = self.filters if filters is None else filters
        return Search(
            question=query,
            k=self.top_k if top_k is None else top_k,
            collection=self.collection,
            filters=convert_filters(filters) if filters else None,
        )


def build_document(hit: Hit) -> Document:
    return Document(id=str(hit.chunk_id), content=hit.text, meta=hit_metadata(hit), score=hit.score)


def convert_filters(filters: Mapping[str, Any]) -> Mapping[str, Any]:
    """The filters in the grammar of `/v1/retrieve`. Raises FilterError if one has no counterpart."""
    match filters:
        case {"operator": "AND" | "OR" as operator, "conditions": [*conditions]}:
            return {"type": operator.lower(), "filters": [convert_filters(condition) for condition in conditions]}
        case {"operator": str(operator), "field": str(field), "value": value} if operator in _COMPARISONS:
            return {"key": field.removeprefix("meta."), "type": _COMPARISONS[operator], "value": value}
    raise FilterError(
        f"a filter must have field, operator and value, or operator (AND, OR) and conditions; the operators are "
        f"{', '.join(_COMPARISONS)}; got {filters!r:.80}"
    )
