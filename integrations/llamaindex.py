"""A retriever for LlamaIndex, which the extra `[llamaindex]` installs."""

from collections.abc import Mapping
from typing import Any

from integrations.doors import Search, Source, open_door, search_in_thread
from integrations.hits import hit_metadata
from rag_core.errors import FilterError, MissingExtraError
from rag_core.types import DEFAULT_COLLECTION
from rag_core.wire.retrieval import Hit

try:
    from llama_index.core.callbacks import CallbackManager
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import NodeRelationship, NodeWithScore, QueryBundle, RelatedNodeInfo, TextNode
    from llama_index.core.vector_stores import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters
except ModuleNotFoundError as error:
    raise MissingExtraError("the extra [llamaindex] is not installed: pip install 'rag-on-ray[llamaindex]'") from error

_COMPARISONS = {
    FilterOperator.EQ: "eq",
    FilterOperator.NE: "ne",
    FilterOperator.GT: "gt",
    FilterOperator.GTE: "gte",
    FilterOperator.LT: "lt",
    FilterOperator.LTE: "lte",
    FilterOperator.IN: "in",
    FilterOperator.NIN: "nin",
    FilterOperator.ANY: "in",
    FilterOperator.CONTAINS: "eq",
}
"""Our comparisons by those of LlamaIndex. A list in metadata has a value if one of its elements has it."""
_PROMPT_KEYS = ("title", "section", "page", "url")
"""The metadata that LlamaIndex writes into prompts, next to that of the document."""


class RagRetriever(BaseRetriever):
    """The hits of a knowledge base as nodes with scores, best first."""

    def __init__(
        self,
        source: Source,
        *,
        api_key: str = "",
        collection: str = DEFAULT_COLLECTION,
        k: int = 10,
        filters: MetadataFilters | Mapping[str, Any] | None = None,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        """`source` is a gateway's URL, a YAML file of settings, a Postgres DSN, `embedded`, or a door.

        `filters` are those of LlamaIndex, or have the grammar of `/v1/retrieve`. Raises FilterError for a comparison
        that the knowledge base does not have.
        """
        super().__init__(callback_manager)
        self._door = open_door(source, api_key)
        self._collection, self._k = collection, k
        self._filters = convert_filters(filters) if isinstance(filters, MetadataFilters) else filters

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [build_node(hit) for hit in self._door.search(self._build_search(query_bundle))]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        hits = await search_in_thread(self._door, self._build_search(query_bundle))
        return [build_node(hit) for hit in hits]

    def _build_search(self, query: QueryBundle) -> Search:
        return Search(question=query.query_str, k=self._k, collection=self._collection, filters=self._filters)


def build_node(hit: Hit) -> NodeWithScore:
    metadata = hit_metadata(hit)
    technical_keys = [key for key in metadata if key not in (*_PROMPT_KEYS, *hit.metadata)]
    document = RelatedNodeInfo(node_id=str(hit.document_id))
    node = TextNode(
        id_=str(hit.chunk_id),
        text=hit.text,
        start_char_idx=hit.start,
        end_char_idx=hit.end,
        metadata=metadata,
        excluded_llm_metadata_keys=technical_keys,
        excluded_embed_metadata_keys=technical_keys,
        relationships={NodeRelationship.SOURCE: document},
    )
    return NodeWithScore(node=node, score=hit.score)


def convert_filters(filters: MetadataFilters) -> Mapping[str, Any]:
    """The filters in the grammar of `/v1/retrieve`. Raises FilterError if one has no counterpart."""
    if filters.condition not in (FilterCondition.AND, FilterCondition.OR):
        raise FilterError(f"the condition of filters must be `and` or `or`, got {filters.condition}")
    parts = [
        convert_filters(part) if isinstance(part, MetadataFilters) else _convert_comparison(part)
        for part in filters.filters
    ]
    return {"type": filters.condition.value, "filters": parts}


def _convert_comparison(filter: MetadataFilter) -> Mapping[str, Any]:
    if filter.operator not in _COMPARISONS:
        operators = ", ".join(operator.value for operator in _COMPARISONS)
        raise FilterError(f"the operator of a filter must be one of {operators}, got {filter.operator.value}")
    return {"key": filter.key, "type": _COMPARISONS[filter.operator], "value": filter.value}
