"""A retriever for LangChain, which the extra `[langchain]` installs."""

from collections.abc import Mapping
from typing import Any

from pydantic import SecretStr, ValidationInfo, field_validator

from integrations.doors import Search, open_door, search_in_thread
from integrations.hits import hit_metadata
from rag_core.errors import MissingExtraError
from rag_core.types import DEFAULT_COLLECTION
from rag_core.wire.retrieval import Hit

try:
    from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
except ModuleNotFoundError as error:
    raise MissingExtraError("the extra [langchain] is not installed: pip install 'rag-on-ray[langchain]'") from error


class RagRetriever(BaseRetriever):
    """The hits of a knowledge base as documents, best first.

    `source` is a gateway's URL, a YAML file of settings, a Postgres DSN, `embedded`, or a door. `filter` has the
    grammar of `/v1/retrieve`. A call can replace `k` and `filter`: `retriever.invoke(question, k=3)`.
    """

    api_key: SecretStr = SecretStr("")
    source: Any
    collection: str = DEFAULT_COLLECTION
    k: int = 10
    filter: Mapping[str, Any] | None = None

    @field_validator("source")
    @classmethod
    def _open_source(cls, source: Any, fields: ValidationInfo) -> Any:
        """Opens the source once: LangChain copies a retriever with its fields when it is configured."""
        key = fields.data.get("api_key")
        return source if key is None else open_door(source, key.get_secret_value())  # None: the key is refused

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,  # noqa: ARG002 - LangChain passes it
        k: int | None = None,
        filter: Mapping[str, Any] | None = None,
    ) -> list[Document]:
        return [build_document(hit) for hit in self.source.search(self._build_search(query, k, filter))]

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun,  # noqa: ARG002 - LangChain passes it
        k: int | None = None,
        filter: Mapping[str, Any] | None = None,
    ) -> list[Document]:
        hits = await search_in_thread(self.source, self._build_search(query, k, filter))
        return [build_document(hit) for hit in hits]

    def _build_search(self, query: str, k: int | None, filter: Mapping[str, Any] | None) -> Search:
        return Search(
            question=query,
            k=self.k if k is None else k,
            collection=self.collection,
            filters=self.filter if filter is None else filter,
        )


def build_document(hit: Hit) -> Document:
    return Document(id=str(hit.chunk_id), page_content=hit.text, metadata=hit_metadata(hit))
