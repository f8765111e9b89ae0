"""The node that brings a collection in step with a set of documents."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from anyio import to_thread
from pydantic import Field

from rag_core.config import Settings
from rag_core.contract.nodes.documents import describe_failure, document_from_dict
from rag_core.contract.nodes.node_config import NodeConfig
from rag_core.contract.nodes.running import Inputs, Outputs, as_node, read_input
from rag_core.ingestion.sources.given import GivenSource
from rag_core.settings import load_settings
from rag_core.storage.postgres import Postgres
from rag_core.storage.queue import PUSHED_URI
from rag_core.wiring.ingestion import build_given_source, build_given_sync, build_inline_runner


class IncrementalIndexerConfig(NodeConfig):
    """`vector_store` names a collection, and `source` the set of documents in it that the inputs replace."""

    node_type: Literal["incremental_indexer"] = "incremental_indexer"
    vector_store: str = Field(min_length=1)
    source: str = Field("documents", pattern=r"^[\w.-]+$")


class IncrementalIndexerNode:
    """Inputs: all `documents` of the source. Outputs: the numbers `added`, `changed`, `deleted` and `same`; `failures`.

    Only new and changed documents are split and embedded, unless they bring `chunks` or an `embedding`. Stored
    documents that are not among the inputs are deleted. If these are more than the setting `ingestion.delete_share`,
    nothing is deleted, and ValueError is raised.
    """

    def __init__(self, config: IncrementalIndexerConfig) -> None:
        self.config = config

    @as_node(lambda _: {"added": 0, "changed": 0, "deleted": 0, "same": 0, "failures": []})
    async def run(self, inputs: Inputs) -> Outputs:
        return await to_thread.run_sync(self._sync_documents, read_input(inputs, "documents"))

    def _sync_documents(self, items: Sequence[Mapping[str, Any]]) -> Outputs:
        settings = load_settings()
        source = _build_source(settings, f"node:///{self.config.source}", items)
        postgres = Postgres.open(settings.store.url)
        sync = build_given_sync(settings, postgres, source, self.config.vector_store, is_partial=False)
        report = sync.run(build_inline_runner(settings))
        failures = [describe_failure(failure, f"{source.uri}/") for failure in report.failures]
        counts = {name: report.documents[name] for name in ("added", "changed", "deleted", "same")}
        return {**counts, "failures": failures}


def _build_source(settings: Settings, root: str, items: Sequence[Mapping[str, Any]]) -> GivenSource:
    """The documents with the metadata that every document has, under uris that begin with the root."""
    documents = [
        document_from_dict({**item, "metadata": {"source": item.get("id"), **(item.get("metadata") or {})}})
        for item in items
    ]
    named = {
        f"{root}/{uri.removeprefix(PUSHED_URI)}": document
        for uri, document in build_given_source(settings, documents).documents.items()
    }
    return GivenSource(root, {uri: replace(document, uri=uri) for uri, document in named.items()}, {})
