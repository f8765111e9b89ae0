"""Deployments of models, run in this process: what they are named, refuse and promise."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import quiet_serve  # noqa: F401
import tiny_models
from fakes.embedding import HELD, batches
from fakes.replica import replica_context
from ray import serve

from rag_core.breaker import Breaker
from rag_core.config import CrossEncoderJudge, OpenAIGenerator, PythonObject, Settings
from rag_core.errors import ConfigError, ModelError, UsageError
from rag_core.settings import load_settings
from rag_core.wiring.judging import judge_model
from serve.app import MAX_ONGOING_REQUESTS, Gateway
from serve.http.admission import build_gates
from serve.models import deployments
from serve.models.deployments import Embedder, Scorer, embedder_app, scorer_app
from serve.models.remote import RemoteEmbedder, RemotePairs
from serve.routes.ingest_outcome import MAX_WAITERS
from serve.routes.job_events import MAX_WATCHERS


@pytest.fixture(autouse=True, scope="module")
def replica() -> Iterator[None]:
    with replica_context():
        yield


def settings(**changes: Any) -> Settings:
    return load_settings(environment={}).model_copy(update=changes)


def settings_with_witness(folder: Path) -> Settings:
    arguments = {"folder": str(folder)}
    embedding = PythonObject(type="python", object="fakes.embedding:WitnessedEncoder", arguments=arguments)
    return settings(embedding=embedding)


def settings_with_judge(model: str) -> Settings:
    judge = CrossEncoderJudge(type="cross_encoder", model=model, precision="fp32")
    guard = settings().guard.model_copy(update={"judge": judge})
    return settings(guard=guard, generation=OpenAIGenerator(type="openai", model="llama"))


def local(app: Any) -> Any:
    return serve.run(app, name="local", _local_testing_mode=True)


def test_deployments_have_the_names_that_a_cluster_configures_them_by(tmp_path: Path) -> None:
    apps = [embedder_app(settings()), scorer_app(settings_with_judge(str(tmp_path)), "judge")]
    assert [app._bound_deployment.name for app in apps] == ["Embedder", "Judge"]


def test_a_full_deployment_answers_503_with_a_time_to_retry() -> None:
    for deployment in (Gateway, Embedder, Scorer):
        refusal = deployment._deployment_config.backpressure_config
        assert (refusal.status_code, refusal.retry_after_s) == (503, 1)


def test_watchers_and_waiters_of_jobs_leave_room_for_questions() -> None:
    gates = build_gates(settings())
    questions = sum(gate.limit + gate.queue for gate in (gates.answers, gates.searches))
    assert MAX_WATCHERS + MAX_WAITERS + questions < MAX_ONGOING_REQUESTS / 8


def test_a_role_that_the_profile_has_no_model_for_is_refused_before_anything_starts() -> None:
    with pytest.raises(ConfigError, match="a remote reranker must be the profile's only reranker, got 0"):
        scorer_app(settings(), "reranker")
    with pytest.raises(ConfigError, match="a remote judge must be of type cross_encoder"):
        scorer_app(settings(), "judge")


def test_a_judges_probabilities_are_those_of_its_model_in_this_process(tmp_path: Path) -> None:
    model = tiny_models.bert_files(tmp_path, "ForSequenceClassification", names=("no", "entailment"))
    judge_settings, pairs = (
        settings_with_judge(str(model)),
        [("rotate the keys", "keys"), ("doors are of oak", "keys"), ("", "")],
    )
    remote = RemotePairs(local(scorer_app(judge_settings, "judge")), Breaker("the judge"), "judge")
    expected = asyncio.run(judge_model(judge_settings.guard.judge).score(pairs))
    assert asyncio.run(remote.score(pairs)) == pytest.approx(expected, abs=1e-5)


def test_a_model_that_is_not_there_makes_no_deployment() -> None:
    with pytest.raises(ModelError, match="model acme/not-there is not a folder"):
        local(scorer_app(settings_with_judge("acme/not-there"), "judge"))


def test_a_text_that_no_tokenizer_reads_fails_its_own_caller_only(tmp_path: Path) -> None:
    embedder = RemoteEmbedder(local(embedder_app(settings_with_witness(tmp_path))), Breaker("the embedder"))

    async def together() -> list[Any]:
        calls = [["keys"], ["keys", "\udc80"], ["doors", "k\0ey"]]
        return await asyncio.gather(*map(embedder.embed, calls), return_exceptions=True)

    first, broken, last = asyncio.run(together())
    assert (first[:, 0].tolist(), last[:, 0].tolist()) == ([4], [5, 4])
    assert isinstance(broken, UsageError)
    assert str(broken) == "a model's input must be Unicode text, got half a surrogate pair"


def test_health_is_the_models_own_and_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployments, "HEALTH_CHECK_TIMEOUT", 0.2)
    replica = Embedder.func_or_class(settings_with_witness(tmp_path).model_dump_json())  # type: ignore[attr-defined]
    embedded: list[str] = []

    class Stuck:
        async def embed(self, texts: list[str]) -> None:
            embedded.extend(texts)
            await asyncio.sleep(60)

    asyncio.run(replica.check_health())
    replica._embedder = Stuck()
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        asyncio.run(replica.check_health())
    assert embedded == ["ready"]
    assert time.monotonic() - began < 30


def test_health_does_not_wait_for_the_calls_that_wait(tmp_path: Path) -> None:
    (tmp_path / HELD).touch()

    async def check_health_amid_calls() -> None:
        replica = Embedder.func_or_class(settings_with_witness(tmp_path).model_dump_json())  # type: ignore[attr-defined]
        waiting = [asyncio.create_task(replica.embed([f"{n}"], {})) for n in range(20)]
        while not batches(tmp_path):
            await asyncio.sleep(0.01)
        await replica.check_health()
        assert not any(call.done() for call in waiting)
        (tmp_path / HELD).unlink()
        await asyncio.gather(*waiting)

    asyncio.run(check_health_amid_calls())
