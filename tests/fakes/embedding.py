"""An encoder that records its texts in a file and can be paused, from any process."""

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rag_core.types import Matrix

HELD = "held"


class WitnessedEncoder:
    """The row of a text is its length and 1. While the folder has a file `held`, no call returns."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def embed_questions(self, texts: Sequence[str]) -> Matrix:
        with (self._folder / "batches").open("a") as file:
            file.write(json.dumps({"pid": os.getpid(), "texts": list(texts)}) + "\n")
        while (self._folder / HELD).exists() and texts[:1] != ["ready"]:
            time.sleep(0.01)
        return np.array([[len(text), 1.0] for text in texts], np.float32).reshape(-1, 2)


def batches(folder: Path) -> list[dict[str, Any]]:
    """The batches that have begun, without health checks."""
    file = folder / "batches"
    begun = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return [batch for batch in begun if batch["texts"] != ["ready"]]


def build_app(arguments: dict[str, str]) -> Any:
    """Builds the embedder's application from settings in JSON, like a Serve config does."""
    from rag_core.config import Settings
    from serve.models.deployments import embedder_app

    return embedder_app(Settings.model_validate_json(arguments["settings"]))
