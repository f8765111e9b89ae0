"""The node that records an annotator's label for a turn."""

from dataclasses import asdict
from typing import Literal

from pydantic import Field

from rag_core.contract.nodes.node_config import NodeConfig
from rag_core.contract.nodes.running import Inputs, Outputs, as_node, read_input
from rag_core.errors import UsageError
from rag_core.evaluation.feedback import Annotation, measure_agreement


class TurnAnnotationConfig(NodeConfig):
    """`labels` are the permitted labels; if there are none, every label is."""

    node_type: Literal["turn_annotation"] = "turn_annotation"
    annotator: str = Field(min_length=1)
    labels: tuple[str, ...] = ()


class TurnAnnotationNode:
    """Inputs: `answer_id` of the turn, its `label`, and earlier `annotations`. Outputs: `annotations` and `agreement`.

    An annotation has `answer_id`, `annotator` and `label`. `agreement` has `annotators`, `answers`, `observed` and
    Cohen's `kappa` for every two annotators with answers in common.
    """

    def __init__(self, config: TurnAnnotationConfig) -> None:
        self.config = config

    @as_node(lambda inputs: {"annotations": list(inputs.get("annotations") or ()), "agreement": []})
    async def run(self, inputs: Inputs) -> Outputs:
        config, label = self.config, str(read_input(inputs, "label"))
        if config.labels and label not in config.labels:
            raise UsageError(f"label must be one of {', '.join(config.labels)}, got {label!r}")
        earlier = [Annotation.model_validate(annotation) for annotation in inputs.get("annotations") or ()]
        new = Annotation(answer_id=str(read_input(inputs, "answer_id")), annotator=config.annotator, label=label)
        annotations = [*earlier, new]
        agreement = [asdict(measured) for measured in measure_agreement(annotations)]
        return {"annotations": [annotation.model_dump() for annotation in annotations], "agreement": agreement}
