"""Models in deployments of Ray Serve, asked as the gateway asks them."""

import asyncio
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import quiet_serve  # noqa: F401
import tiny_models
from fakes.deployments import ScriptedHandle, raised_in_replica
from fakes.embedding import HELD, batches
from ray.exceptions import RayTaskError

from rag_core.breaker import Breaker
from rag_core.config import (
    BertEmbedder,
    Bm25Retriever,
    CrossEncoderReranker,
    PythonObject,
    RerankedRetriever,
    Settings,
)
from rag_core.errors import OverloadedError, RagError, StageTimeoutError, UsageError
from rag_core.settings import load_settings
from rag_core.stage import stage
from rag_core.wiring.embedding import build_encoder
from rag_core.wiring.reranking import reranker_model
from serve.models.remote import Method, RemoteEmbedder, RemotePairs

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # of Ray's own making
]

QUESTION = "how do i rotate the keys"
TEXTS = ["rotate the keys weekly", "doors are of oak", "", "key", "the key of a house", "k\0ey", "keys " * 20_000]
PAIRS = [(QUESTION, text) for text in TEXTS]
PATIENCE = 60.0


@pytest.fixture(scope="module")
def serving(ray_cluster: None) -> Iterator[None]:
    from ray import serve

    serve.start(proxy_location="Disabled")
    yield
    serve.shutdown()


@pytest.fixture(autouse=True)
def nothing_is_left_deployed(serving: None) -> Iterator[None]:
    """Deletes all deployments: they would keep their CPUs from the next test."""
    from ray import serve

    yield
    for name in serve.status().applications:
        serve.delete(name)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def encoder_settings(folder: Path) -> Settings:
    arguments = {"folder": str(folder)}
    embedding = PythonObject(type="python", object="fakes.embedding:WitnessedEncoder", arguments=arguments)
    return load_settings(environment={}).model_copy(update={"embedding": embedding})


def run_app(app: Any, name: str) -> Any:
    from ray import serve

    return serve.run(app, name=name, route_prefix=None)


@pytest.fixture
def handle(serving: None, folder: Path) -> Iterator[Any]:
    """A handle of an encoder that records its texts. It runs four calls at once, and eight can wait."""
    from serve.models.deployments import Embedder

    small = Embedder.options(max_ongoing_requests=4, max_queued_requests=8, graceful_shutdown_wait_loop_s=0.1)  # type: ignore[attr-defined]
    yield run_app(small.bind(encoder_settings(folder).model_dump_json()), "witnessed")
    (folder / HELD).unlink(missing_ok=True)


async def wait_until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():
            await asyncio.sleep(0.02)


def texts_of(folder: Path) -> list[str]:
    return [text for batch in batches(folder) for text in batch["texts"]]


@pytest.mark.timeout(600)
def test_scores_and_vectors_are_those_of_the_models_in_this_process(serving: None, tmp_path: Path) -> None:
    from serve.models.deployments import embedder_app, scorer_app

    settings = model_settings(
        tiny_models.bert_files(tmp_path / "embedder", ""),
        tiny_models.bert_files(tmp_path / "reranker", "ForSequenceClassification"),
    )

    async def remote() -> Sequence[Any]:
        embedder = RemoteEmbedder(run_app(embedder_app(settings), "embedder"), Breaker("the embedder"))
        reranker = RemotePairs(run_app(scorer_app(settings, "reranker"), "reranker"), Breaker("a"), "reranker")
        rows, scores = await asyncio.gather(embedder.embed(TEXTS), reranker.score(PAIRS))
        with pytest.raises(UsageError, match="must be Unicode text, got half a surrogate pair"):
            await reranker.score([("\ud800", "keys")])
        return rows, scores, (await embedder.embed([])).shape, await reranker.score([])

    rows, scores, shape, none = asyncio.run(remote())
    local = build_encoder(settings.embedding).embed_questions(TEXTS)
    assert np.abs(rows - local).max() < 1e-3
    assert scores == pytest.approx(asyncio.run(reranker_model(reranker_of(settings)).score(PAIRS)), abs=1e-3)
    assert len(set(scores)) > 3
    assert (shape, none) == ((0, 32), [])


def model_settings(embedder: Path, model: Path) -> Settings:
    reranker = CrossEncoderReranker(type="cross_encoder", model=str(model), precision="fp32", batch_size=2)
    retrieval = RerankedRetriever(type="reranked", retriever=Bm25Retriever(type="bm25"), reranker=reranker)
    embedding = BertEmbedder(type="bert", model=str(embedder), precision="fp32")
    return load_settings(environment={}).model_copy(update={"embedding": embedding, "retrieval": retrieval})


def reranker_of(settings: Settings) -> CrossEncoderReranker:
    assert isinstance(settings.retrieval, RerankedRetriever)
    assert isinstance(settings.retrieval.reranker, CrossEncoderReranker)
    return settings.retrieval.reranker


def test_what_a_replica_raises_comes_as_the_scripted_handle_has_it(handle: Any) -> None:
    error = UsageError("a model's input must be Unicode text, got half a surrogate pair")

    async def catch_error(method: Method) -> Any:
        with pytest.raises(RayTaskError) as caught:
            await method.remote(["\udc80"], {})
        return caught.value

    real, scripted = (
        asyncio.run(catch_error(target.embed)) for target in (handle, ScriptedHandle(raised_in_replica(error)))
    )
    assert [kind.__name__ for kind in type(real).__mro__] == [kind.__name__ for kind in type(scripted).__mro__]
    assert isinstance(real, UsageError)
    assert (type(real.cause), str(real.cause)) == (type(scripted.cause), str(scripted.cause))


def test_calls_that_come_while_the_model_is_busy_become_one_batch(handle: Any, folder: Path) -> None:
    embedder = RemoteEmbedder(handle, Breaker("the embedder"))

    async def embed_while_held() -> list[Any]:
        (folder / HELD).touch()
        first = asyncio.create_task(embedder.embed(["first"]))
        await wait_until(lambda: len(batches(folder)) == 1)
        others = [asyncio.create_task(embedder.embed(["x" * n, "y"])) for n in (2, 3, 4)]
        await asyncio.sleep(1)
        (folder / HELD).unlink()
        return await asyncio.gather(first, *others)

    rows = asyncio.run(embed_while_held())
    assert [vectors[:, 0].tolist() for vectors in rows] == [[5], [2, 1], [3, 1], [4, 1]]
    assert len(batches(folder)) == 2


def test_a_stage_that_is_out_of_time_takes_its_texts_out_of_the_queue(handle: Any, folder: Path) -> None:
    breaker = Breaker("the embedder")
    embedder = RemoteEmbedder(handle, breaker)

    async def embed_late() -> None:
        async with stage("dense", 0.5):
            await embedder.embed(["late"])

    async def time_out_in_queue() -> None:
        (folder / HELD).touch()
        first = asyncio.create_task(embedder.embed(["first"]))
        await wait_until(lambda: len(batches(folder)) == 1)
        with pytest.raises(StageTimeoutError):
            await embed_late()
        third = asyncio.create_task(embedder.embed(["third"]))
        await asyncio.sleep(1)
        (folder / HELD).unlink()
        await asyncio.gather(first, third)

    asyncio.run(time_out_in_queue())
    assert texts_of(folder) == ["first", "third"]
    assert breaker.state == "closed"


def test_too_many_waiting_calls_are_refused_as_overload(handle: Any, folder: Path) -> None:
    breaker = Breaker("the embedder")
    embedder = RemoteEmbedder(handle, breaker)

    async def embed_many() -> list[Any]:
        (folder / HELD).touch()
        calls = [asyncio.create_task(embedder.embed([f"{n}"])) for n in range(30)]
        await wait_until(lambda: any(call.done() for call in calls))
        (folder / HELD).unlink()
        return await asyncio.gather(*calls, return_exceptions=True)

    outcomes = asyncio.run(embed_many())
    refused = [outcome for outcome in outcomes if isinstance(outcome, OverloadedError)]
    answered = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
    assert 0 < len(refused) <= 30 - 8
    assert len(texts_of(folder)) == len(answered) == 30 - len(refused)
    assert breaker.state == "closed"


def test_while_a_replica_is_killed_every_call_of_eight_callers_has_an_outcome_of_ours(
    handle: Any, folder: Path
) -> None:
    embedder = RemoteEmbedder(handle, Breaker("the embedder"))
    outcomes: list[str] = []

    async def call_until_stopped(stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                async with asyncio.timeout(PATIENCE):
                    assert (await embedder.embed(["keys"])).tolist() == [[4, 1]]
                outcomes.append("answered")
            except OverloadedError:
                await asyncio.sleep(0.05)
            except RagError as error:
                outcomes.append(f"{error}")

    async def kill_under_load() -> None:
        stop = asyncio.Event()
        callers = [asyncio.create_task(call_until_stopped(stop)) for _ in range(8)]
        await wait_until(lambda: len(outcomes) > 20)
        (victim,) = {batch["pid"] for batch in batches(folder)}
        psutil.Process(victim).send_signal(signal.SIGKILL)
        await wait_until(lambda: len({batch["pid"] for batch in batches(folder)}) == 2)
        before = len(outcomes)
        await wait_until(lambda: len(outcomes) > before + 20)
        stop.set()
        await asyncio.gather(*callers)

    asyncio.run(kill_under_load())
    assert {*outcomes} <= {"answered", "the deployment of the embedder is unavailable: ActorDiedError"}
    assert outcomes[-1] == "answered"


def test_a_changed_budget_holds_from_the_next_batch_on_in_the_same_process(serving: None, folder: Path) -> None:
    from ray import serve

    def deploy(user_config: dict[str, Any]) -> Any:
        from ray.serve.context import _get_global_client
        from ray.serve.schema import ServeDeploySchema

        application = {
            "name": "configured",
            "import_path": "fakes.embedding:build_app",
            "route_prefix": None,
            "args": {"settings": encoder_settings(folder).model_dump_json()},
            "deployments": [{"name": "Embedder", "user_config": user_config}],
        }
        _get_global_client().deploy_apps(ServeDeploySchema.model_validate({"applications": [application]}))

    async def batch_sizes(handle: Any) -> list[int]:
        """The numbers of texts of the batches that one call with five texts causes."""
        before = len(batches(folder))
        await RemoteEmbedder(handle, Breaker("the embedder")).embed(["a" * 36] * 5)
        return sorted(len(batch["texts"]) for batch in batches(folder)[before:])

    def running() -> Any:
        return serve.status().applications["configured"].status == "RUNNING"

    async def change_config(user_config: dict[str, Any]) -> list[int]:
        deploy(user_config)
        await asyncio.sleep(1)
        await wait_until(running)
        return await batch_sizes(serve.get_app_handle("configured"))

    async def apply_changes() -> list[list[int]]:
        return [
            await change_config({"tokens": 20}),
            await change_config({"tokens": 50}),
            await change_config({"token": 20}),
        ]

    assert asyncio.run(apply_changes()) == [[1, 2, 2], [5], [5]]
    assert len({batch["pid"] for batch in batches(folder)}) == 1
