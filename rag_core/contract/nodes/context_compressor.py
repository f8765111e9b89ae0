"""The node that selects the results which a generator reads."""

from typing import Any, Literal

from anyio import to_thread
from pydantic import Field

from rag_core.config import PackingSettings
from rag_core.contract.nodes.node_config import NodeConfig
from rag_core.contract.nodes.running import Inputs, Outputs, as_node, read_input
from rag_core.settings import load_settings
from rag_core.types import Passage
from rag_core.wire.result_dicts import hit_from_result
from rag_core.wiring.pipeline import build_packer

_DEFAULTS = PackingSettings()


class ContextCompressorConfig(NodeConfig):
    """The limits are those of all items together. `strategy` selects the note of each item, as `packing.strategy`."""

    node_type: Literal["context_compressor"] = "context_compressor"
    strategy: Literal["concatenate", "weighted", "recency", "template"] = "concatenate"
    max_items: int = Field(_DEFAULTS.passages, ge=1)
    max_tokens: int = Field(_DEFAULTS.tokens, ge=64)
    near_duplicate: float = Field(_DEFAULTS.near_duplicate, gt=0, le=1)


class ContextCompressorNode:
    """Inputs: `results`, best first. Outputs: `context`, without near duplicates and within the limits.

    Overlapping chunks of one document become one item, with the id of the best of them. A node that is not enabled
    returns all results as context.
    """

    def __init__(self, config: ContextCompressorConfig) -> None:
        self.config = config

    @as_node(lambda inputs: {"context": list(inputs.get("results") or ())})
    async def run(self, inputs: Inputs) -> Outputs:
        config, settings = self.config, load_settings()
        limits = {"passages": config.max_items, "tokens": config.max_tokens, "near_duplicate": config.near_duplicate}
        packing = settings.packing.model_copy(update={"strategy": config.strategy, **limits})
        pack = build_packer(settings.model_copy(update={"packing": packing}))
        results = read_input(inputs, "results")
        hits = [hit_from_result(result) for result in results]
        ids = {hit.chunk.id: str(result["id"]) for hit, result in zip(hits, results, strict=True)}
        passages = await to_thread.run_sync(pack, hits)
        return {"context": [_describe_passage(passage, ids[passage.hit.chunk.id]) for passage in passages]}


def _describe_passage(passage: Passage, id: str) -> dict[str, Any]:
    note = {"note": passage.note} if passage.note else {}
    place = {"start_index": passage.start, "end_index": passage.end}
    metadata = {**passage.hit.chunk.metadata, "prefix": passage.chunks[0].prefix, **place, **note}
    return {"id": id, "content": passage.text, "score": passage.hit.score, "metadata": metadata}
