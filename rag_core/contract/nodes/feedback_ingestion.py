"""The node that stores feedback."""

from typing import Literal

from anyio import to_thread

from rag_core.contract.nodes.node_config import NodeConfig
from rag_core.contract.nodes.running import Inputs, Outputs, as_node, read_input
from rag_core.settings import load_settings
from rag_core.storage.postgres import Postgres
from rag_core.storage.replies import Feedback, Replies
from rag_core.wiring.encryption import build_cipher


class FeedbackIngestionConfig(NodeConfig):
    node_type: Literal["feedback_ingestion"] = "feedback_ingestion"


class FeedbackIngestionNode:
    """Inputs: `feedback` on an answer of the gateway that uses the same store. Outputs: `feedback_id`."""

    def __init__(self, config: FeedbackIngestionConfig) -> None:
        self.config = config

    @as_node(lambda _: {"feedback_id": None})
    async def run(self, inputs: Inputs) -> Outputs:
        feedback = Feedback(**read_input(inputs, "feedback"))
        return {"feedback_id": await to_thread.run_sync(_store_feedback, feedback)}


def _store_feedback(feedback: Feedback) -> str:
    settings = load_settings()
    with Postgres.open(settings.store.url).connect() as connection:
        return str(Replies(connection, settings.tenant, build_cipher(settings.encryption)).add_feedback(feedback).id)
