"""The node that detects a change of the subject."""

from collections.abc import Mapping
from typing import Literal

from anyio import to_thread

from rag_core.contract.nodes.context import messages_from_history
from rag_core.contract.nodes.node_config import NodeConfig
from rag_core.contract.nodes.running import Inputs, Outputs, as_node, read_input
from rag_core.models.encoders.query_embedder import ThreadedQueryEmbedder
from rag_core.retrieval.query.topic_shift import TopicShiftDetector
from rag_core.settings import load_settings
from rag_core.text.analysis import terms
from rag_core.types import Query
from rag_core.wiring.embedding import load_shared_encoder
from rag_core.wiring.understanding import SHIFT_THRESHOLDS


class TopicShiftDetectorConfig(NodeConfig):
    """`high` detects more changes, and raises more false alarms."""

    node_type: Literal["topic_shift_detector"] = "topic_shift_detector"
    sensitivity: Literal["low", "medium", "high"] = "medium"


class TopicShiftDetectorNode:
    """Inputs: `query` and `conversation_history`. Outputs: `is_shift`, `drift` and the `conversation_history` to use.

    `drift` is the distance from the subject so far, from 0 to 1, and None without earlier questions. After a shift the
    history to use is empty. The question is encoded with the embedding model of the profile.
    """

    def __init__(self, config: TopicShiftDetectorConfig) -> None:
        self.config = config

    @as_node(lambda inputs: _describe_drift(inputs, drift=None, is_shift=False))
    async def run(self, inputs: Inputs) -> Outputs:
        query = str(read_input(inputs, "query"))
        history = messages_from_history(inputs.get("conversation_history") or (), query)
        encoder = await to_thread.run_sync(load_shared_encoder, load_settings().embedding)
        threshold = SHIFT_THRESHOLDS[self.config.sensitivity]
        detector = TopicShiftDetector(ThreadedQueryEmbedder(encoder), _EqualRarities(), threshold)
        drift = await detector.measure(Query(text=query), history)
        return _describe_drift(inputs, drift.distance, drift.is_shift)


class _EqualRarities:
    """Equal rarities for all terms, because a node does not know the collection."""

    async def idf(self, query: Query) -> Mapping[str, float]:
        return dict.fromkeys(terms(query.text, "en"), 1.0)


def _describe_drift(inputs: Inputs, drift: float | None, is_shift: bool) -> Outputs:
    history = [] if is_shift else list(inputs.get("conversation_history") or ())
    return {"is_shift": is_shift, "drift": drift, "conversation_history": history}
