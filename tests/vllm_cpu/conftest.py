"""A Llama of random weights behind vLLM and `ray.serve.llm`, in our graph, on two CPUs: one per test run."""

import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from engine import MODEL, TOKENS, Engine
from tiny_llama import WINDOW, llama_files

from benchmarks.free_port import find_free_port
from jobs.ray_connection import RAY_ENVIRONMENT
from rag_core.breaker import Breaker
from rag_core.config import Settings
from rag_core.knowledge_base import KnowledgeBase
from rag_core.models.chat import ChatClient
from rag_core.settings import load_settings
from rag_core.storage.postgres import Postgres

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of Ray's own making
    from serve.app import build_application
    from serve.gateway_settings import GatewaySettings
    from serve.models.llm import LlmSettings, chat_call, deployment_client
    from serve.shape.arguments import Parts

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

LONG = 60.0
OFFLINE = {"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
DOCUMENTS = {
    "keys.md": "# Keys\n\nThe keys of the vault are replaced every 45 days by the night watch.\n",
    "locks.md": "# Locks\n\nThe locks are oiled in spring, and opened at noon.\n",
}


@pytest.fixture(scope="session")
def engine(short_folder: Path) -> Iterator[Engine]:
    """A Ray whose metrics are at most half a second old."""
    engine = Engine(find_free_port(), short_folder / "ray")
    engine_environment = {"PYTHONPATH": os.pathsep.join(sys.path), "RAY_metrics_report_interval_ms": "500"}
    with pytest.MonkeyPatch.context() as environment:
        for name, value in (RAY_ENVIRONMENT | OFFLINE | engine_environment).items():
            environment.setenv(name, value)
        environment.delenv("RAY_ADDRESS", raising=False)
        import ray

        ray.init(
            num_cpus=3,  # the gateway takes one, which it hardly uses
            include_dashboard=False,
            log_to_driver=False,
            _temp_dir=str(engine.folder),
            _metrics_export_port=engine.port,
        )
        yield engine
        ray.shutdown()


@pytest.fixture(scope="session")
def settings(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Settings of a gateway whose engine gives long answers, over a store with two documents."""
    overrides = [
        f"store.url={postgres.dsn}",
        "embedding={type: hashing, dimension: 64}",
        f"generation={{type: openai, model: {MODEL}, temperature: 0, max_tokens: {TOKENS}, fallback: none}}",
        f"generation.first_token_timeout_ms={1000 * LONG}",
        f"retrieval.timeout_ms={1000 * LONG}",
        "packing.tokens=200",
        "answering.budget=none",
    ]
    settings = load_settings(None, "default", overrides, environment={})
    folder = tmp_path_factory.mktemp("documents")
    for name, text in DOCUMENTS.items():
        (folder / name).write_text(text)
    with KnowledgeBase(settings) as knowledge:
        knowledge.ingest(folder)
    return settings


@pytest.fixture(scope="session")
def gateway(engine: Engine, settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a graph that is ready, but cold: an engine's first answer takes seconds."""
    from ray import serve

    port = find_free_port()
    llama = llama_settings(llama_files(tmp_path_factory.mktemp(MODEL)))
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    serve.run(
        build_application(GatewaySettings(own=settings), Parts(generator=llama, ingest=False)),
        name="rag",
        route_prefix="/",
    )
    yield f"http://127.0.0.1:{port}"
    serve.shutdown()


def llama_settings(folder: Path) -> LlmSettings:
    return LlmSettings(
        model=MODEL,
        source=str(folder),
        device="cpu",
        cpus=0.5,
        max_ongoing_requests=2,
        max_queued_requests=2,
        engine={
            "dtype": "bfloat16",
            "max_model_len": WINDOW,
            "enforce_eager": True,
            "max_num_seqs": 4,
            # a random model would fill its answer with blanks
            "structured_outputs_config": {"backend": "xgrammar", "disable_any_whitespace": True},
        },
        environment=OFFLINE,
    )


@pytest.fixture
def deployment(gateway: str) -> "DeploymentHandle":
    """The handle of the graph's deployment of the engine."""
    from ray import serve

    return serve.get_deployment_handle(f"LLMServer:{MODEL}", app_name="rag")


@pytest.fixture
def client(deployment: "DeploymentHandle") -> ChatClient:
    breaker = Breaker(f"the deployment of {MODEL}")
    return deployment_client(
        chat_call(deployment), model=MODEL, first_token_timeout=LONG, stall_timeout=LONG, breaker=breaker
    )
