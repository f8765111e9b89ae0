"""A Llama of random weights behind vLLM and `ray.serve.llm`, on two CPUs: one a test run."""

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from engine import Engine
from tiny_llama import WINDOW, llama_files

from jobs.runner import ENVIRONMENT
from serve.llm import HandleClient, LlmSettings, chat, llm_deployment

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

MODEL = "llama"
LONG = 60.0
OFFLINE = {"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}


@pytest.fixture(scope="session")
def engine(short_folder: Path) -> Iterator[Engine]:
    """A Ray, whose metrics are half a second old at the most."""
    engine = Engine(_free_port(), short_folder / "ray")
    own = {"PYTHONPATH": os.pathsep.join(sys.path), "RAY_metrics_report_interval_ms": "500"}
    with pytest.MonkeyPatch.context() as environment:
        for name, value in (ENVIRONMENT | OFFLINE | own).items():
            environment.setenv(name, value)
        environment.delenv("RAY_ADDRESS", raising=False)
        import ray

        ray.init(
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            _temp_dir=str(engine.folder),
            _metrics_export_port=engine.port,
        )
        yield engine
        ray.shutdown()


@pytest.fixture(scope="session")
def deployment(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> "Iterator[DeploymentHandle]":
    """Ready, but cold: an engine's first answer takes seconds."""
    from ray import serve

    settings = LlmSettings(
        model=MODEL,
        source=str(llama_files(tmp_path_factory.mktemp(MODEL))),
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
    yield serve.run(llm_deployment(settings), name="llm", route_prefix=None)
    serve.shutdown()


@pytest.fixture
def client(deployment: "DeploymentHandle") -> HandleClient:
    return HandleClient(chat(deployment), model=MODEL, first_token_timeout=LONG, stall_timeout=LONG)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
