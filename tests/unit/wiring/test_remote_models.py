"""Models that run in other processes: they are called, and none is loaded in this process."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from drafts import SPACE, TENANT, draft, vector
from fakes.answering import passage
from fakes.corpus import MemoryCorpus
from fakes.judging import ScriptedClient

from rag_core.breaker import Breaker
from rag_core.config import LlmJudge, LlmReranker, Settings
from rag_core.errors import CircuitOpenError, ConfigError, GenerationError
from rag_core.models.chat import ChatClient, Completion, CompletionDelta
from rag_core.protocols import Pair
from rag_core.settings import load_settings
from rag_core.types import Answer, Matrix, Prompt, Query
from rag_core.wiring.generation import build_generator
from rag_core.wiring.judging import build_judge
from rag_core.wiring.models import RemoteModels, called_models, select_chat
from rag_core.wiring.retrieval import build_retriever

MISSING = "acme/not-there"
RERANKER = f"{{type: cross_encoder, model: {MISSING}}}"
RERANKED = f"retrieval={{type: reranked, retriever: {{type: dense}}, reranker: {RERANKER}}}"
WRITTEN = "generation={type: openai, model: llama, base_url: 'http://localhost:1'}"
JUDGED = f"guard.judge={{type: cross_encoder, model: {MISSING}}}"
NOTE = draft("file:///a.md", "keys", "keys are rotated", "doors")


class Lengths:
    """A remote model whose score of a pair is the length of the second text."""

    def __init__(self) -> None:
        self.scored_pairs: list[Pair] = []

    async def score(self, pairs: Sequence[Pair]) -> list[float]:
        self.scored_pairs.extend(pairs)
        return [len(text) / 100 for _, text in pairs]

    async def embed(self, texts: Sequence[str]) -> Matrix:
        return np.stack([vector(text) for text in texts])


class Writing(ScriptedClient):
    async def stream(
        self,
        messages: Sequence[Mapping[str, str]],
        *,
        temperature: float,  # noqa: ARG002
        max_tokens: int,  # noqa: ARG002
    ) -> AsyncGenerator[CompletionDelta, None]:
        self.contents.append(messages[-1]["content"])
        yield CompletionDelta(text="Weekly [1].")
        yield CompletionDelta(finish="stop")


class Rarities:
    async def idf(self, query: Query) -> Mapping[str, float]:  # noqa: ARG002
        return {}


@pytest.fixture(autouse=True)
def nothing_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse_loading(*_: object) -> Any:
        raise AssertionError("a model was loaded in this process")

    for role in ("question_embedder", "generation", "judging"):
        monkeypatch.setattr(f"rag_core.wiring.{role}.load_shared_encoder", refuse_loading)
    monkeypatch.setattr("rag_core.wiring.judging._load_judge_classifier", refuse_loading)
    monkeypatch.setattr("rag_core.wiring.reranking._load_reranker_model", refuse_loading)
    monkeypatch.setattr("rag_core.wiring.retrieval.embedding_space", lambda _: SPACE)


def settings_of(*overrides: str) -> Settings:
    return load_settings(None, "default", ["embedding={type: hashing}", *overrides], {})


def test_the_query_is_encoded_and_the_candidates_are_reranked_elsewhere() -> None:
    memory = MemoryCorpus(tenant=TENANT, collection="default", space=SPACE)
    memory.publish([NOTE])
    remote = Lengths()
    retriever = build_retriever(settings_of(RERANKED), memory, RemoteModels(embedder=remote, reranker=remote))  # type: ignore[arg-type]
    hits = asyncio.run(retriever.retrieve(Query(text="rotation", tenant=TENANT), 2))
    assert [(hit.chunk.text, hit.score) for hit in hits] == [("keys are rotated", 0.16), ("doors", 0.05)]
    assert sorted(remote.scored_pairs) == [
        ("rotation", "doors"),
        ("rotation", "keys"),
        ("rotation", "keys are rotated"),
    ]


def test_claims_are_judged_elsewhere_with_the_passage_first() -> None:
    remote = Lengths()
    judging = build_judge(settings_of(WRITTEN, JUDGED), RemoteModels(judge=remote))
    verdict = asyncio.run(judging.judge(Answer(text="Keys last."), [passage(1, "Keys are rotated weekly.")]))
    assert remote.scored_pairs == [("Keys are rotated weekly.", "Keys last.")]
    assert verdict.score == pytest.approx(0.1)


def test_the_language_model_elsewhere_writes_and_judges_and_reranks_what_asks_the_same_endpoint() -> None:
    remote = Writing(otherwise=Completion(text='{"supported": true, "reason": "it says so"}'))
    same = "{type: llm, model: llama, base_url: 'http://localhost:1'}"
    settings = settings_of(WRITTEN, f"guard.judge={same}")
    prompt = Prompt(query=Query(text="How often?"), passages=(passage(1, "Keys are rotated weekly."),))

    async def write_answer() -> str:
        stream = build_generator(settings, Rarities(), RemoteModels(embedder=Lengths(), chat=remote)).stream(prompt)
        return "".join([piece async for piece in stream])

    assert asyncio.run(write_answer()) == "Weekly [1]."
    verdict = asyncio.run(
        build_judge(settings, RemoteModels(chat=remote)).judge(Answer(text="Weekly."), prompt.passages)
    )
    assert verdict.method == "llm"
    assert len(remote.contents) == 2
    assert select_chat(
        LlmReranker(type="llm", model="llama", base_url="http://localhost:1"),
        settings,
        RemoteModels(chat=remote),
        "reranker",
    )
    other = LlmJudge(type="llm", model="other", base_url="http://localhost:1")
    assert isinstance(select_chat(other, settings, RemoteModels(chat=remote), "judge"), ChatClient)


def test_the_lexical_judge_compares_words_alone_if_the_embedder_is_remote() -> None:
    settings = settings_of(WRITTEN, "guard.judge={type: lexical}", f"embedding={{type: bert, model: {MISSING}}}")
    judging = build_judge(settings, RemoteModels(embedder=Lengths()))
    assert asyncio.run(judging.judge(Answer(text="Keys last."), [passage(1, "Keys last.")])).score == 1


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (
            ["retrieval={type: reranked, retriever: {type: bm25}, reranker: {type: lexical}}"],
            "a remote reranker must be of type cross_encoder or late_interaction, got retrieval.reranker.type lexical",
        ),
        (
            [
                f"retrieval={{type: reranked, reranker: {RERANKER}, retriever: {{type: reranked, "
                "retriever: {type: bm25}, reranker: {type: cross_encoder, model: other}}}"
            ],
            "a remote reranker must be the profile's only reranker, got 2",
        ),
    ],
)
def test_a_reranker_that_cannot_run_elsewhere_is_refused(overrides: list[str], reason: str) -> None:
    memory: Any = MemoryCorpus(tenant=TENANT, collection="default", space=SPACE)
    with pytest.raises(ConfigError) as caught:
        build_retriever(settings_of(*overrides), memory, RemoteModels(reranker=Lengths()))
    assert str(caught.value) == reason


@pytest.mark.parametrize("judge", ["{type: lexical}", "{type: llm, model: llama}"])
def test_a_judge_that_cannot_run_elsewhere_is_refused(judge: str) -> None:
    with pytest.raises(ConfigError, match=r"must be of type cross_encoder, got guard\.judge"):
        build_judge(settings_of(WRITTEN, f"guard.judge={judge}"), RemoteModels(judge=Lengths()))


def test_nothing_is_elsewhere_unless_it_is_given() -> None:
    assert RemoteModels(embedder=None, reranker=None, judge=None, chat=None) == RemoteModels()
    assert isinstance(
        select_chat(LlmJudge(type="llm", model="llama"), settings_of(WRITTEN), RemoteModels(), "judge"), ChatClient
    )


@pytest.mark.parametrize(
    ("overrides", "roles"),
    [
        ([], ["embedder"]),
        ([WRITTEN], ["embedder", "generator"]),
        ([WRITTEN, "guard.judge={type: llm, model: llama}"], ["embedder", "generator", "judge"]),
        (["guard.judge={type: llm, model: llama}"], ["embedder"]),  # quoted sentences have another judge
        (
            ["retrieval={type: reranked, retriever: {type: dense}, reranker: {type: llm, model: llama}}"],
            ["embedder", "reranker"],
        ),
        (["conversation.understanding={type: llm, model: llama}"], ["embedder", "understander"]),
    ],
)
def test_models_that_this_process_calls_have_breakers(overrides: list[str], roles: list[str]) -> None:
    assert called_models(settings_of(*overrides), RemoteModels()) == roles
    remote = RemoteModels(embedder=Lengths(), judge=Lengths(), chat=Writing())
    assert set(called_models(settings_of(*overrides), remote)) <= {"reranker", "understander"}


def test_an_endpoint_that_failed_five_times_is_not_called_for_a_while() -> None:
    breakers = {"judge": Breaker("the model of the judge")}
    remote = RemoteModels(protect=lambda role: breakers[role].protect)
    refusing = LlmJudge(type="llm", model="llama", base_url="http://127.0.0.1:1", attempts=1)

    async def fail(times: int) -> None:
        client = select_chat(refusing, settings_of(WRITTEN), remote, "judge")
        for _ in range(times):
            with pytest.raises(GenerationError, match="cannot be reached"):
                await client.complete([{"role": "user", "content": "?"}], max_tokens=1)
        with pytest.raises(CircuitOpenError, match="the model of the judge failed 5 times in a row"):
            await client.complete([{"role": "user", "content": "?"}], max_tokens=1)
        await remote.aclose()

    asyncio.run(fail(5))
    assert breakers["judge"].state == "open"
