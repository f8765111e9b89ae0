"""The shape of cluster/serve/gpu.yaml for a machine without GPUs: tiny random models, and an endpoint that answers.

All other keys of the file stay, so that what is measured is what it configures.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks.random_models import write_random_model
from rag_core import open_knowledge_base

GPU_SHAPE = Path(__file__).parents[1] / "cluster" / "serve" / "gpu.yaml"
QUESTION = "How often are the signing keys replaced?"
TEXTS = {
    "keys.md": "# Keys\n\nSigning keys are replaced every 45 days.",
    "doors.md": "# Doors\n\nThe doors of a house are of oak.",
    "gates.md": "# Gates\n\nThe gate opens at six, and a pilot has its key.",
}
CPUS = 0.1
"""The CPUs of a replica, as Ray counts them."""


def write_tiny_models(folder: Path) -> None:
    for name in ("tiny", "tiny-reranker", "tiny-nli"):
        write_random_model(name, folder / name)


def small_settings(models: Path, dsn: str, endpoint: str) -> list[str]:
    """The settings of the profile for GPUs with the tiny models. `endpoint` is the base URL of the language model."""
    generation = {"type": "openai", "model": "fixed", "base_url": endpoint}
    return [
        f"store.url={dsn}",
        "chunking.tokens=256",
        f"embedding={{type: bert, model: {models / 'tiny'}, device: cpu}}",
        f"retrieval.reranker={{model: {models / 'tiny-reranker'}, device: cpu}}",
        f"guard.judge={{model: {models / 'tiny-nli'}, device: cpu}}",
        f"generation={json.dumps(generation)}",
        # a slow machine fails no request: only replicas that are missing do
        "answering.budget=none",
        "retrieval.timeout_ms=60000",
        "retrieval.retriever.timeout_ms=60000",
    ]


def small_shape(settings: Sequence[str], port: int, replicas: int = 2) -> dict[str, Any]:
    """The Serve config, with this number of replicas of the gateway and of each model."""
    shape: dict[str, Any] = yaml.safe_load(GPU_SHAPE.read_text())
    shape["http_options"]["port"] = port
    application = shape["applications"][0]
    application["args"]["set"] = list(settings)
    del application["args"]["generator"]
    for deployment in application["deployments"]:
        deployment["ray_actor_options"] = {"num_cpus": CPUS}
        deployment["autoscaling_config"] |= {"min_replicas": replicas, "max_replicas": replicas}
    return shape


def gateways_only(shape: dict[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """The Serve config without deployments of models, for a machine that is too small for them."""
    (application,) = shape["applications"]
    arguments = {"profile": "default", "set": list(settings), "deployments": []}
    gateways = [deployment for deployment in application["deployments"] if deployment["name"] == "Gateway"]
    return {**shape, "applications": [{**application, "args": arguments, "deployments": gateways}]}


def ingest_texts(folder: Path, settings: Sequence[str], profile: str = "gpu") -> None:
    """Writes the documents to a new folder, and ingests them."""
    folder.mkdir(parents=True)
    for name, text in TEXTS.items():
        (folder / name).write_text(text)
    with open_knowledge_base(profile=profile, settings=list(settings)) as knowledge:
        knowledge.ingest(folder)
