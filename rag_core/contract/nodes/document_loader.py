"""The node that reads documents from files, web pages and APIs."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import stamina
from anyio import to_thread
from pydantic import Field, field_validator

from rag_core.config import Settings
from rag_core.contract.nodes.documents import describe_document
from rag_core.contract.nodes.node_config import NodeConfig
from rag_core.contract.nodes.running import Inputs, Outputs, as_node, retry_rules
from rag_core.errors import DocumentError, SourceError, TransientError
from rag_core.parsing.detection import SUFFIXES
from rag_core.protocols import Source
from rag_core.settings import load_settings
from rag_core.types import Entry
from rag_core.wiring.ingestion import open_files_source
from rag_core.wiring.parsing import open_parser

_log = logging.getLogger(__name__)


class DocumentLoaderConfig(NodeConfig):
    """`source_config` holds defaults of every source; it is the only source if the inputs name none.

    `format_handlers` are suffixes of the formats to load; `txt` loads Markdown too, and an API loads JSON. `batch_size`
    documents are read before the node can be cancelled.
    """

    node_type: Literal["document_loader"] = "document_loader"
    source_type: Literal["file", "web", "api"]
    source_config: dict[str, Any]
    format_handlers: list[str] = Field(["pdf", "html", "txt", "docx"])
    batch_size: int = Field(100, ge=1)

    @field_validator("format_handlers")
    @classmethod
    def _check_formats(cls, names: list[str]) -> list[str]:
        if unknown := [name for name in names if f".{name}" not in SUFFIXES]:
            raise ValueError(
                f"format_handlers must be suffixes of known formats, such as pdf, got {', '.join(unknown)}"
            )
        return names


class DocumentLoaderNode:
    """Inputs: `sources`, each with `type` and `path` or `url`. Outputs: `documents`, without those that fail.

    Each failure is logged as a warning.
    """

    def __init__(self, config: DocumentLoaderConfig) -> None:
        self.config = config

    @as_node(lambda _: {"documents": []})
    async def run(self, inputs: Inputs) -> Outputs:
        settings, size = load_settings(), self.config.batch_size
        documents: list[dict[str, Any]] = []
        for source_input in inputs.get("sources") or [{}]:
            location, formats = self._read_source({**self.config.source_config, **source_input})
            source = await to_thread.run_sync(open_files_source, settings, location)
            entries = await to_thread.run_sync(lambda source: list(source.listing()), source)
            for first in range(0, len(entries), size):
                batch = entries[first : first + size]
                documents += await to_thread.run_sync(self._read_batch, settings, source, batch, formats)
        return {"documents": documents}

    def _read_source(self, source: Mapping[str, Any]) -> tuple[str, set[str]]:
        """The path or address, and the formats to load. Raises SourceError if the source has no address of its type."""
        type_, location = source.get("type", self.config.source_type), source.get("path") or source.get("url")
        if type_ not in ("file", "web", "api") or not location:
            raise SourceError(f"a source must have a type (file, web or api) and a path or url, got {source}")
        if type_ != "file" and not str(location).startswith(("http://", "https://")):
            raise SourceError(f"a {type_} source must have an http or https address, got {location!r}")
        formats = {SUFFIXES[f".{name}"] for name in self.config.format_handlers}
        extra = {"markdown": "text" in formats, "json": type_ == "api"}
        return str(location), formats | {name for name, is_loaded in extra.items() if is_loaded}

    def _read_batch(
        self, settings: Settings, source: Source, entries: Sequence[Entry], formats: set[str]
    ) -> list[dict[str, Any]]:
        parse = open_parser(settings.parsing, settings.limits)
        read = stamina.retry(on=TransientError, **retry_rules(self.config.retry_config))(source.read)
        documents = []
        for entry in entries:
            try:
                document = parse(entry.uri, read(entry))
            except DocumentError as error:
                _log.warning("did not load %s: %s: %s", entry.uri, error.stage, error.reason)
                continue
            if (format_ := document.metadata["format"]) in formats:
                documents.append(describe_document(document))
            else:
                _log.warning("did not load %s: format_handlers lack its format %s", entry.uri, format_)
        return documents
