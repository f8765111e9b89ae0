"""The node that assigns conversations to the variants of an experiment."""

from typing import Literal

from pydantic import Field

from rag_core.answering.split import Experiment
from rag_core.contract.nodes.node_config import NodeConfig
from rag_core.contract.nodes.running import Inputs, Outputs, as_node, read_input
from rag_core.settings import load_settings


class ABTestingConfig(NodeConfig):
    """`share` is the share of conversations that the treatment gets."""

    node_type: Literal["ab_testing"] = "ab_testing"
    experiment: str = Field(min_length=1)
    share: float = Field(0.5, ge=0, le=1)


class ABTestingNode:
    """Inputs: `session_id`. Outputs: `variant`, `control` or `treatment`, and `bucket`, from 0 to 9,999.

    A session always gets the same variant of an experiment.
    """

    def __init__(self, config: ABTestingConfig) -> None:
        self.config = config

    @as_node(lambda _: {"variant": "control", "bucket": None})
    async def run(self, inputs: Inputs) -> Outputs:
        experiment = Experiment(name=self.config.experiment, share=self.config.share)
        bucket = experiment.bucket(load_settings().tenant, str(read_input(inputs, "session_id")))
        return {"variant": experiment.variant(bucket), "bucket": bucket}
