"""The node that completes the metadata of documents and chunks."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

from anyio import to_thread

from rag_core.config import Settings
from rag_core.contract.nodes.documents import document_from_dict
from rag_core.contract.nodes.node_config import NodeConfig
from rag_core.contract.nodes.running import Inputs, Outputs, run_node
from rag_core.errors import UsageError
from rag_core.parsing.metadata import MetadataRules, apply_rules, complete_metadata
from rag_core.settings import load_settings

_KINDS = ("documents", "chunks")


class MetadataExtractorConfig(NodeConfig):
    node_type: Literal["metadata_extractor"] = "metadata_extractor"


class MetadataExtractorNode:
    """In: `documents`, `chunks` or both. Out: the same, with the metadata `title`, `source`, `tags` and `language`.

    The profile's rules for metadata are applied. A node that is not enabled returns its inputs.
    """

    def __init__(self, config: MetadataExtractorConfig) -> None:
        self.config = config

    async def run(self, inputs: Inputs) -> Outputs:
        given = {kind: inputs[kind] for kind in _KINDS if kind in inputs}
        return await run_node(self.config, partial(self._complete, given), given)

    async def _complete(self, given: Mapping[str, list[Mapping[str, Any]]]) -> Outputs:
        if not given:
            raise UsageError("inputs must have 'documents' or 'chunks', got none of them")
        settings = load_settings()
        return {
            kind: await to_thread.run_sync(lambda items: [_complete_item(settings, item) for item in items], items)
            for kind, items in given.items()
        }


def _complete_item(settings: Settings, item: Mapping[str, Any]) -> dict[str, Any]:
    section, metadata = settings.metadata, item.get("metadata") or {}
    source = metadata.get("source", item.get("document_id", item["id"]))
    document = document_from_dict({**item, "id": source})
    rules = MetadataRules(rename=section.rename, drop=section.drop, from_path=section.from_path, set=section.set)
    document = apply_rules(complete_metadata(document, settings.parsing.detect_language), rules)
    fields = {"title": document.title, "language": document.language, "source": source}
    return {**item, "metadata": {"tags": [], **metadata, **document.metadata, **fields}}
