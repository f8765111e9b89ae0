"""An encoder that writes down what it was given, and can be held up: from whatever process it runs in."""

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
    """A row for a text: its length, and 1. While the folder has a file `held`, nothing that has begun comes to its
    end."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def embed_questions(self, texts: Sequence[str]) -> Matrix:
        with (self._folder / "batches").open("a") as file:
            file.write(json.dumps({"pid": os.getpid(), "texts": list(texts)}) + "\n")
        while (self._folder / HELD).exists() and texts[:1] != ["ready"]:
            time.sleep(0.01)
        return np.array([[len(text), 1.0] for text in texts], np.float32).reshape(-1, 2)


def batches(folder: Path) -> list[dict[str, Any]]:
    """Those begun so far, without probes."""
    told = folder / "batches"
    read = [json.loads(line) for line in told.read_text().splitlines()] if told.exists() else []
    return [batch for batch in read if batch["texts"] != ["ready"]]


def configured_app(arguments: dict[str, str]) -> Any:
    """Of settings in JSON, as a configuration file of Serve would have it built."""
    from rag_core.config import Settings
    from serve.models.deployments import embedder_app

    return embedder_app(Settings.model_validate_json(arguments["settings"]))
