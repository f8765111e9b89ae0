"""The node that writes results to a file."""

import json
from pathlib import Path
from typing import Any, Literal

from anyio import to_thread
from pydantic import Field

from rag_core.contract.nodes.node_config import NodeConfig
from rag_core.contract.nodes.running import Inputs, Outputs, as_node


class AnalyticsExportConfig(NodeConfig):
    """`path` is the JSON file. An existing one is replaced."""

    node_type: Literal["analytics_export"] = "analytics_export"
    path: str = Field(min_length=1)


class AnalyticsExportNode:
    """Inputs: any, such as `evaluations` and `metrics`. Outputs: `path` of the file with one JSON object of them."""

    def __init__(self, config: AnalyticsExportConfig) -> None:
        self.config = config

    @as_node(lambda _: {"path": ""})
    async def run(self, inputs: Inputs) -> Outputs:
        await to_thread.run_sync(self._write, dict(inputs))
        return {"path": self.config.path}

    def _write(self, results: dict[str, Any]) -> None:
        path = Path(self.config.path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(results, ensure_ascii=False, indent=2, default=str) + "\n", encoding="utf-8")
