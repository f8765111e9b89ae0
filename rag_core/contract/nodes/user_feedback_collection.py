"""The node that collects what a user thinks of an answer."""

from dataclasses import asdict
from typing import Literal

from rag_core.contract.nodes.node_config import NodeConfig
from rag_core.contract.nodes.running import Inputs, Outputs, as_node, read_input
from rag_core.storage.replies import Feedback


class UserFeedbackCollectionConfig(NodeConfig):
    node_type: Literal["user_feedback_collection"] = "user_feedback_collection"


class UserFeedbackCollectionNode:
    """Inputs: `answer_id`, and `rating`, `stars`, `comment`, `corrected_answer` or `signals`. Outputs: `feedback`.

    `rating` is -1, 0 or 1, `stars` is from 1 to 5. `signals` are actions of the user: `copied`, `opened_source`.
    """

    def __init__(self, config: UserFeedbackCollectionConfig) -> None:
        self.config = config

    @as_node(lambda _: {"feedback": None})
    async def run(self, inputs: Inputs) -> Outputs:
        feedback = Feedback(
            answer_id=str(read_input(inputs, "answer_id")),
            rating=inputs.get("rating"),
            stars=inputs.get("stars"),
            comment=str(inputs.get("comment", "")),
            corrected_answer=str(inputs.get("corrected_answer", "")),
            signals=tuple(inputs.get("signals") or ()),
        )
        return {"feedback": asdict(feedback)}
