"""Tokens per second of vLLM through the gateway, compared with the same engine without it: in one run, in turn.

Without the gateway, clients call the engine's deployment by its handle, without HTTP and without a search. They send
the messages that the gateway writes for the same questions, on an event loop like the gateway's. Clients ask one
question after another at temperature 0 and stream the answers. The clients of the gateway use OpenAI's library, and
share the CPUs. This benchmark requires vLLM: `make vllm`, or a GPU.

    .venv-vllm/bin/python -m benchmarks.vllm                                  a random model of 260 kB, on a CPU
    python -m benchmarks.vllm --config cluster/serve/gpu.yaml --clients 1 16 64 --tokens 256
"""

import argparse
import asyncio
import logging
import os
import re
import runpy
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import uvloop
import yaml
from openai import AsyncOpenAI

from benchmarks.json_lines import json_lines
from benchmarks.machine import heading
from benchmarks.scratch import exit_when_terminated, scratch_folder, server_in
from jobs.ray_connection import RAY_ENVIRONMENT
from rag_core import KnowledgeBase
from rag_core.breaker import Breaker
from rag_core.config import Settings
from rag_core.models.chat import ChatClient, ChatMessage
from rag_core.models.fence import fresh_nonce
from rag_core.settings import load_settings
from rag_core.types import Query
from rag_core.wiring.models import RemoteModels
from serve.models.llm import ChatCall, LlmSettings, chat_call, deployment_client

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

ROOT = Path(__file__).parents[1]
DEMO = ROOT / "demo"
HOST, PORT = "127.0.0.1", 8125
TIMEOUT = 600.0
ANSWER_EVENT = 'data: {"choices": [{"delta": {"content": "So it is."}, "finish_reason": "stop"}]}\n\n'
FENCE = re.compile("passage-[0-9a-f]+")
HANDLE, GATEWAY = "vLLM by handle", "gateway"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A question, and the messages that the gateway writes for it."""

    question: str
    messages: Sequence[ChatMessage]

    def with_new_nonce(self) -> list[ChatMessage]:
        """The messages with another nonce, like the gateway's next request.

        With the same nonce, the prefix cache would contain them all.
        """
        nonce = fresh_nonce()
        return [{**message, "content": FENCE.sub(f"passage-{nonce}", message["content"])} for message in self.messages]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamedAnswer:
    """The seconds until the first words, and the number of tokens."""

    first_seconds: float
    tokens: int


class Ask(Protocol):
    async def __call__(self, prompt: Prompt) -> StreamedAnswer: ...


@dataclass(slots=True)
class Measurements:
    """The tokens per second of each round, and the milliseconds to the first words of each answer."""

    rates: list[float] = field(default_factory=list)
    firsts: list[float] = field(default_factory=list)


def main() -> None:
    arguments = _arguments()
    logging.disable(logging.INFO)  # Ray and vLLM would log every request
    with scratch_folder() as scratch:
        llama = _read_generator(arguments.config) if arguments.config else _write_tiny_llama(scratch / "llama")
        print(heading(_device(llama)))
        with server_in(scratch) as store:
            settings = _settings(store, llama, arguments.tokens)
            with _deploy(settings, llama) as (url, handle):
                uvloop.run(_measure(settings, llama, url, handle, arguments))


def _read_generator(config: Path) -> LlmSettings:
    """The first generator of the applications in this Serve config."""
    applications = yaml.safe_load(config.read_text())["applications"]
    all_arguments = [application["args"] for application in applications]
    generator = next(arguments["generator"] for arguments in all_arguments if arguments.get("generator"))
    return LlmSettings.model_validate(generator)


def _write_tiny_llama(folder: Path) -> LlmSettings:
    """Writes the random model that the tests use, and returns its settings."""
    folder.mkdir()
    tests = runpy.run_path(str(ROOT / "tests" / "vllm_cpu" / "tiny_llama.py"))
    return LlmSettings(
        model="llama",
        source=str(tests["llama_files"](folder)),
        device="cpu",
        cpus=0.5,
        engine={"dtype": "bfloat16", "max_model_len": tests["WINDOW"], "enforce_eager": True, "max_num_seqs": 64},
        environment={"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1"},
    )


def _device(llama: LlmSettings) -> str:
    if llama.device == "cpu":
        return f"{llama.model} on a CPU (not measured on a GPU)"
    import torch

    return f"{llama.model} on {torch.cuda.get_device_name()}"


def _settings(store: str, llama: LlmSettings, tokens: int) -> Settings:
    overrides = [
        f"store.url={store}",
        "embedding={type: hashing}",
        f"generation={{type: openai, model: {llama.model}, temperature: 0, max_tokens: {tokens}, fallback: none}}",
        f"generation.first_token_timeout_ms={1000 * TIMEOUT}",
        f"answering.timeout_ms={1000 * TIMEOUT}",
        "answering.budget=none",
        "packing.tokens=600",
    ]
    settings = load_settings(None, "default", overrides, environment={})
    with KnowledgeBase(settings) as knowledge:
        knowledge.ingest(DEMO / "corpus")
    return settings


@contextmanager
def _deploy(settings: Settings, llama: LlmSettings) -> "Iterator[tuple[str, DeploymentHandle[Any]]]":
    """Yields the gateway's address and the handle of the engine's deployment."""
    os.environ.update({key: value for key, value in RAY_ENVIRONMENT.items() if key not in os.environ})
    import ray
    from ray import serve

    from serve.app import build_application
    from serve.gateway_settings import GatewaySettings
    from serve.models.model_connections import llm_name
    from serve.shape.arguments import Parts

    # more CPUs than a small machine has, because the gateway hardly uses the one that it reserves
    cpus = max(4, os.cpu_count() or 0)
    ray.init(num_cpus=cpus, include_dashboard=False, log_to_driver=False)
    exit_when_terminated()
    try:
        serve.start(http_options={"host": HOST, "port": PORT}, logging_config={"enable_access_log": False})
        serve.run(
            build_application(GatewaySettings(own=settings), Parts(generator=llama, ingest=False)),
            name="rag",
            route_prefix="/",
        )
        yield f"http://{HOST}:{PORT}", serve.get_deployment_handle(llm_name(llama), app_name="rag")
    finally:
        serve.shutdown()
        ray.shutdown()


async def _measure(
    settings: Settings,
    llama: LlmSettings,
    url: str,
    handle: "DeploymentHandle[Any]",
    arguments: argparse.Namespace,
) -> None:
    prompts = await _prompts(settings)
    print(f"{len(prompts)} questions in turn, {arguments.answers} answers a round, {arguments.rounds} rounds")
    async with _contestants(llama, url, handle, arguments.tokens) as contestants:
        for ask in contestants.values():
            await ask(prompts[0])  # the first answer of an engine is slow
        print(f"{'':24} {'clients':>7} {'tokens/s':>10} {'ratio':>7} {'first p50 ms':>13} {'p95 ms':>8}")
        for clients in arguments.clients:
            measurements = {name: Measurements() for name in contestants}
            for _ in range(arguments.rounds):
                for name, ask in contestants.items():
                    await _run_round(ask, prompts, clients, max(arguments.answers, clients), measurements[name])
            _show(clients, measurements)


async def _prompts(settings: Settings) -> list[Prompt]:
    from serve.services import open_shared_resources

    questions = [row["question"] for row in json_lines(DEMO / "questions.jsonl")]
    engine = _RecordingEngine()
    client = _connect(engine.chat, "recording")
    graph = open_shared_resources(settings, RemoteModels(chat=client)).build_services(settings)
    for question in questions:
        await graph.answerer.answer(Query(text=question))
    await graph.close()
    return [
        Prompt(question=question, messages=messages)
        for question, messages in zip(questions, engine.requests, strict=True)
    ]


def _connect(chat: ChatCall, model: str) -> ChatClient:
    breaker = Breaker(f"the deployment of {model}")
    return deployment_client(chat, model=model, first_token_timeout=TIMEOUT, stall_timeout=TIMEOUT, breaker=breaker)


class _RecordingEngine:
    """An engine that keeps the messages of its requests, and answers with one event."""

    def __init__(self) -> None:
        self.requests: list[Sequence[ChatMessage]] = []

    def chat(self, body: Mapping[str, Any]) -> "_Answer":
        self.requests.append(body["messages"])
        return _Answer()


class _Answer:
    def __init__(self) -> None:
        self._events = iter([ANSWER_EVENT])

    async def __anext__(self) -> str:
        for event in self._events:
            return event
        raise StopAsyncIteration

    def cancel(self) -> None: ...


@asynccontextmanager
async def _contestants(
    llama: LlmSettings, url: str, handle: "DeploymentHandle[Any]", tokens: int
) -> AsyncIterator[dict[str, Ask]]:
    by_handle = _connect(chat_call(handle), llama.model)
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=TIMEOUT) as client:

        async def ask_handle(prompt: Prompt) -> StreamedAnswer:
            began, first, counted = time.perf_counter(), 0.0, 0
            async with aclosing(
                by_handle.stream(prompt.with_new_nonce(), temperature=0.0, max_tokens=tokens)
            ) as deltas:
                async for delta in deltas:
                    first = first or (time.perf_counter() - began if delta.text else 0.0)
                    counted = delta.usage.completion_tokens if delta.usage else counted
            return StreamedAnswer(first_seconds=first, tokens=counted)

        async def ask_gateway(prompt: Prompt) -> StreamedAnswer:
            began, first, counted = time.perf_counter(), 0.0, 0
            body: dict[str, Any] = {"model": "default", "messages": [{"role": "user", "content": prompt.question}]}
            options = {"stream": True, "stream_options": {"include_usage": True}}
            async for chunk in await client.chat.completions.create(**body, **options):
                if not first and chunk.choices and chunk.choices[0].delta.content:
                    first = time.perf_counter() - began
                counted = chunk.usage.completion_tokens if chunk.usage else counted
            return StreamedAnswer(first_seconds=first, tokens=counted)

        yield {HANDLE: ask_handle, GATEWAY: ask_gateway}


async def _run_round(
    ask: Ask, prompts: Sequence[Prompt], clients: int, answers: int, measurements: Measurements
) -> None:
    next_prompts, began, streamed = cycle(prompts), time.perf_counter(), list[StreamedAnswer]()
    remaining = iter(range(answers))

    async def client() -> None:
        for _ in remaining:
            streamed.append(await ask(next(next_prompts)))

    await asyncio.gather(*(client() for _ in range(clients)))
    measurements.rates.append(sum(answer.tokens for answer in streamed) / (time.perf_counter() - began))
    measurements.firsts.extend(1000 * answer.first_seconds for answer in streamed)


def _show(clients: int, measurements: Mapping[str, Measurements]) -> None:
    """Prints a row per contestant. The ratio to the engine by handle is the median of the rounds' ratios."""
    handle_rates = measurements[HANDLE].rates
    for name, contestant in measurements.items():
        ratio = np.median(
            [rate / handle_rate for rate, handle_rate in zip(contestant.rates, handle_rates, strict=True)]
        )
        p50, p95 = np.percentile(contestant.firsts, [50, 95])
        print(f"{name:24} {clients:7} {np.median(contestant.rates):10.1f} {ratio:7.2f} {p50:13.1f} {p95:8.1f}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, help="a Serve config with the generator to measure")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--tokens", type=int, default=64, help="maximum tokens per answer")
    parser.add_argument("--answers", type=int, default=16, help="answers per round; at least the number of clients")
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
