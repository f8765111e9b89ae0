"""Tokens a second of vLLM through the gateway, beside the same engine without it: all in one run, in turn.

The floor is the engine's deployment asked by its handle, without HTTP and without a search, with the very messages
that the gateway writes for its questions, on an event loop like the gateway's. Clients ask one question after another,
each streamed, at temperature 0; the gateway's are OpenAI's own, and share the CPUs. It needs vLLM: `make vllm`, or
a GPU.

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
from jobs.ray_runner import RAY_ENVIRONMENT
from rag_core import KnowledgeBase
from rag_core.config import Settings
from rag_core.models.endpoint import ChatMessage
from rag_core.models.fence import fresh_nonce
from rag_core.settings import load_settings
from rag_core.types import Query
from rag_core.wiring.models import RemoteModels
from serve.models.llm import HandleClient, LlmSettings, chat_call

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

ROOT = Path(__file__).parents[1]
DEMO = ROOT / "demo"
HOST, PORT = "127.0.0.1", 8125
LONG = 600.0
SAID = 'data: {"choices": [{"delta": {"content": "So it is."}, "finish_reason": "stop"}]}\n\n'
FENCE = re.compile("passage-[0-9a-f]+")
HANDLE, GATEWAY = "vLLM by handle", "gateway"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question, and the messages that the gateway makes of it."""

    question: str
    messages: Sequence[ChatMessage]

    def again(self) -> list[ChatMessage]:
        """With another nonce, as the gateway would ask again: else a prefix cache had all of it."""
        nonce = fresh_nonce()
        return [{**each, "content": FENCE.sub(f"passage-{nonce}", each["content"])} for each in self.messages]


@dataclass(frozen=True, slots=True, kw_only=True)
class Streamed:
    """`first` is in seconds until the first words."""

    first: float
    tokens: int


class Asking(Protocol):
    async def __call__(self, asked: Asked) -> Streamed: ...


@dataclass(slots=True)
class Measured:
    """One entry of `rates` a round, in tokens a second; one of `firsts`, in milliseconds, an answer."""

    rates: list[float] = field(default_factory=list)
    firsts: list[float] = field(default_factory=list)


def main() -> None:
    arguments = _arguments()
    logging.disable(logging.INFO)  # Ray and vLLM turn it on for everything, each request included
    with scratch_folder() as scratch:
        llama = _generator(arguments.config) if arguments.config else _tiny(scratch / "llama")
        print(heading(_device(llama)))
        with server_in(scratch) as store:
            settings = _settings(store, llama, arguments.tokens)
            with _deployed(settings, llama) as (url, handle):
                uvloop.run(_measure(settings, llama, url, handle, arguments))


def _generator(config: Path) -> LlmSettings:
    """The first one that an application of this Serve config has."""
    applications = yaml.safe_load(config.read_text())["applications"]
    given = next(each["args"]["generator"] for each in applications if each["args"].get("generator"))
    return LlmSettings.model_validate(given)


def _tiny(folder: Path) -> LlmSettings:
    """The model that the tests make."""
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
        return f"{llama.model} on a CPU (unmeasured on a GPU)"
    import torch

    return f"{llama.model} on {torch.cuda.get_device_name()}"


def _settings(store: str, llama: LlmSettings, tokens: int) -> Settings:
    chosen = [
        f"store.url={store}",
        "embedding={type: hashing}",
        f"generation={{type: openai, model: {llama.model}, temperature: 0, max_tokens: {tokens}, fallback: none}}",
        f"generation.first_token_timeout_ms={1000 * LONG}",
        f"answering.timeout_ms={1000 * LONG}",
        "answering.budget=none",
        "packing.tokens=600",
    ]
    settings = load_settings(None, "default", chosen, environment={})
    with KnowledgeBase(settings) as knowledge:
        knowledge.ingest(DEMO / "corpus")
    return settings


@contextmanager
def _deployed(settings: Settings, llama: LlmSettings) -> "Iterator[tuple[str, DeploymentHandle[Any]]]":
    """The gateway's address, and the deployment behind it."""
    os.environ.update({key: value for key, value in RAY_ENVIRONMENT.items() if key not in os.environ})
    import ray
    from ray import serve

    from serve.app import build_application
    from serve.models.model_connections import llm_name
    from serve.shape.arguments import Parts

    # more than a small machine has: the gateway hardly uses the one that it takes
    cpus = max(4, os.cpu_count() or 0)
    ray.init(num_cpus=cpus, include_dashboard=False, log_to_driver=False)
    exit_when_terminated()
    try:
        serve.start(http_options={"host": HOST, "port": PORT}, logging_config={"enable_access_log": False})
        serve.run(build_application(settings, Parts(generator=llama, ingest=False)), name="rag", route_prefix="/")
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
            await ask(prompts[0])  # an engine is slow until it has answered once
        print(f"{'':24} {'clients':>7} {'tokens/s':>10} {'of it':>7} {'first p50 ms':>13} {'p95':>8}")
        for clients in arguments.clients:
            measured = {name: Measured() for name in contestants}
            for _ in range(arguments.rounds):
                for name, ask in contestants.items():
                    await _round(ask, prompts, clients, max(arguments.answers, clients), measured[name])
            _show(clients, measured)


async def _prompts(settings: Settings) -> list[Asked]:
    from serve.graph import open_graph_resources

    questions = [row["question"] for row in json_lines(DEMO / "questions.jsonl")]
    noting = _Noting()
    client = HandleClient(noting.chat, model="noting", first_token_timeout=LONG, stall_timeout=LONG)
    graph = open_graph_resources(settings, RemoteModels(chat=client)).build_graph(settings)
    for question in questions:
        await graph.answerer.answer(Query(text=question))
    await graph.close()
    return [Asked(question=each, messages=messages) for each, messages in zip(questions, noting.heard, strict=True)]


class _Noting:
    """An engine that only keeps what it is asked."""

    def __init__(self) -> None:
        self.heard: list[Sequence[ChatMessage]] = []

    def chat(self, body: Mapping[str, Any]) -> "_Said":
        self.heard.append(body["messages"])
        return _Said()


class _Said:
    def __init__(self) -> None:
        self._events = iter([SAID])

    async def __anext__(self) -> str:
        for event in self._events:
            return event
        raise StopAsyncIteration

    def cancel(self) -> None: ...


@asynccontextmanager
async def _contestants(
    llama: LlmSettings, url: str, handle: "DeploymentHandle[Any]", tokens: int
) -> AsyncIterator[dict[str, Asking]]:
    by_handle = HandleClient(chat_call(handle), model=llama.model, first_token_timeout=LONG, stall_timeout=LONG)
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=LONG) as client:

        async def ask_handle(asked: Asked) -> Streamed:
            began, first, counted = time.perf_counter(), 0.0, 0
            async with aclosing(by_handle.stream(asked.again(), temperature=0.0, max_tokens=tokens)) as deltas:
                async for delta in deltas:
                    first = first or (time.perf_counter() - began if delta.text else 0.0)
                    counted = delta.usage.completion_tokens if delta.usage else counted
            return Streamed(first=first, tokens=counted)

        async def ask_gateway(asked: Asked) -> Streamed:
            began, first, counted = time.perf_counter(), 0.0, 0
            body: dict[str, Any] = {"model": "default", "messages": [{"role": "user", "content": asked.question}]}
            wanted = {"stream": True, "stream_options": {"include_usage": True}}
            async for chunk in await client.chat.completions.create(**body, **wanted):
                if not first and chunk.choices and chunk.choices[0].delta.content:
                    first = time.perf_counter() - began
                counted = chunk.usage.completion_tokens if chunk.usage else counted
            return Streamed(first=first, tokens=counted)

        yield {HANDLE: ask_handle, GATEWAY: ask_gateway}


async def _round(ask: Asking, prompts: Sequence[Asked], clients: int, answers: int, measured: Measured) -> None:
    turn, began, told = cycle(prompts), time.perf_counter(), list[Streamed]()
    left = iter(range(answers))

    async def client() -> None:
        for _ in left:
            told.append(await ask(next(turn)))

    await asyncio.gather(*(client() for _ in range(clients)))
    measured.rates.append(sum(each.tokens for each in told) / (time.perf_counter() - began))
    measured.firsts.extend(1000 * each.first for each in told)


def _show(clients: int, measured: Mapping[str, Measured]) -> None:
    """Ratios are medians of those of the rounds."""
    floor = measured[HANDLE].rates
    for name, each in measured.items():
        ratio = np.median([rate / beside for rate, beside in zip(each.rates, floor, strict=True)])
        p50, p95 = np.percentile(each.firsts, [50, 95])
        print(f"{name:24} {clients:7} {np.median(each.rates):10.1f} {ratio:7.2f} {p50:13.1f} {p95:8.1f}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, help="a Serve config, whose generator is measured")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--tokens", type=int, default=64, help="of an answer at the most")
    parser.add_argument("--answers", type=int, default=16, help="of a round; no fewer than clients")
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
