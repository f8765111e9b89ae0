"""The shipped shapes on real Ray Serve: the one for GPUs with its resources and models overridden, and nothing else."""

import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
import quiet_serve  # noqa: F401
import tiny_models
import yaml
from fakes.shapes import PIECES
from hosts import RAG, with_interrupts
from ray.serve.schema import ServeDeploySchema
from trees import HASHING, write
from waiting import wait_until

from benchmarks.free_port import find_free_port
from rag_core import open_knowledge_base
from rag_core.errors import ClusterError
from rag_core.storage.postgres import Postgres
from serve.shape.config import parse_serve_config
from serve.shape.local import deploy, wait_until_ready

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.filterwarnings("ignore"),  # of Ray's own making
]

SHIPPED = Path(__file__).parents[2] / "cluster" / "serve"
FILES = {
    "keys.md": "# Keys\n\nKeys are replaced every 45 days.",
    "doors.md": "# Doors\n\nThe doors of a house are of oak.",
    "nights.md": "# Nights\n\nTurn the keys of a house two by two by night.",
}
QUESTION = "how do i rotate the keys"
PATIENCE = 60.0
SMALL = ("Embedder", "Reranker", "Judge")
GENERATOR = "LLMServer:Qwen--Qwen2_5-7B-Instruct"
CLIENTS, UNDER_FIRE, DEADLINE = 8, 6.0, 10.0
"""Seconds of asking, and those that each question has."""

Shape = dict[str, Any]


def read_shape(name: str) -> Shape:
    shape: Shape = yaml.safe_load((SHIPPED / f"{name}.yaml").read_text())
    return shape


def deployments(shape: Shape) -> Mapping[str, Any]:
    return {deployment["name"]: deployment for deployment in shape["applications"][0]["deployments"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shapes")


@pytest.fixture(scope="module")
def small_models(module_store: Postgres, folder: Path) -> list[str]:
    """Settings with tiny models for a CPU in place of the GPU profile's. The store has documents that they embedded."""
    bert = tiny_models.bert_files(folder / "bert", "")
    scorer = tiny_models.bert_files(folder / "scorer", "ForSequenceClassification")
    names = ["contradiction", "entailment"]
    classifier = tiny_models.bert_files(folder / "classifier", "ForSequenceClassification", names=names)
    chunking = "chunking={type: sections, tokens: 16, overlap: 0, prefix_tokens: 0}"
    embedding = f"embedding={{type: bert, model: {bert}, device: cpu}}"
    with open_knowledge_base(module_store.dsn, settings=[chunking, embedding]) as knowledge:
        knowledge.ingest(write(folder / "docs", FILES))
    return [
        chunking,
        embedding,
        f"store.url={module_store.dsn}",
        "answering.budget=none",
        "generation.first_token_timeout_ms=60000",
        "generation.stall_timeout_ms=60000",
        f"retrieval.reranker={{model: {scorer}, device: cpu}}",
        f"guard.judge={{model: {classifier}, device: cpu}}",
    ]


@pytest.fixture(scope="module")
def on_cpu(small_models: list[str]) -> Shape:
    """The shape for GPUs, changed so that two CPUs suffice."""
    shape = read_shape("gpu")
    shape["http_options"]["port"] = find_free_port()
    shape["applications"][0]["import_path"] = "fakes.shapes:build"
    shape["applications"][0]["args"]["set"] = small_models
    for deployment in deployments(shape).values():
        deployment["ray_actor_options"] = {"num_cpus": 0.1}
    return shape


@pytest.fixture(scope="module")
def server_url(on_cpu: Shape, ray_cluster: None) -> Iterator[str]:
    from ray import serve

    shape = parse_serve_config(on_cpu)
    serve.start(proxy_location="HeadOnly", http_options=shape.http_options.model_dump())
    deploy(shape)
    yield wait_until_ready(shape.http_options.host, shape.http_options.port, print)
    serve.shutdown()


def replicas() -> dict[str, list[int]]:
    """Process ids by deployment, of replicas that have one: one that begins has none yet."""
    from ray.serve.context import _get_global_client

    details = _get_global_client().get_serve_details()["applications"]["rag"]["deployments"]
    return {
        name: [replica["pid"] for replica in deployment["replicas"] if replica.get("pid")]
        for name, deployment in details.items()
    }


def generator() -> Any:
    from ray import serve

    return serve.get_deployment_handle(GENERATOR, "rag")


def call_remote(method: Any) -> Any:
    return method.remote().result(timeout_s=PATIENCE)


def loads_torch(pid: int) -> bool:
    return any("libtorch" in mapping.path for mapping in psutil.Process(pid).memory_maps())


@contextmanager
def open_client(url: str) -> Iterator[httpx2.Client]:
    """A client whose requests all go to the same gateway, because each applies a change when it receives it."""
    with httpx2.Client(base_url=url, timeout=PATIENCE, headers={"x-session-id": "one"}) as client:
        yield client


def retrieve(client: httpx2.Client) -> httpx2.Response:
    return client.post("/v1/retrieve", json={"query": QUESTION, "top_k": 3, "explain": True})


def version(client: httpx2.Client) -> str:
    return str(retrieve(client).json()["pipeline_version"])


def count_reranked(client: httpx2.Client) -> int:
    """The number of hits that have a score of the reranker."""
    return sum("rerank" in hit["explain"] for hit in retrieve(client).json()["results"])


def reload_failure(client: httpx2.Client) -> str:
    """The reason why the last change of the settings was refused. A probe that was late also gives a reason."""
    return str(client.get("/readyz").json()["checks"]["settings"].get("reason", ""))


def test_in_the_shape_for_gpus_every_model_is_asked_in_a_deployment_of_its_own(server_url: str) -> None:
    before = call_remote(generator().count_questions)
    with open_client(server_url) as client:
        hits = retrieve(client).json()
        answer = client.post("/v1/answer", json={"question": QUESTION}).json()
        wait_until(lambda: client.get("/readyz").json()["ok"])  # a probe can be late on a busy machine
        ready = client.get("/readyz").json()
    assert [set(hit["explain"]) for hit in hits["results"]] == [{"dense", "bm25", "fusion", "rerank"}] * 3
    assert answer["answer"] == "".join(PIECES)
    assert answer["grounding"]["method"] == "cross-encoder"
    assert call_remote(generator().count_questions) == before + 1
    assert hits["degraded"] == answer["degraded"] == []
    assert {name: check.get("breaker") for name, check in ready["checks"].items()} == {
        **dict.fromkeys(("store", "embedder", "reranker", "judge", "generator"), "closed"),
        **dict.fromkeys(("ingest", "settings")),
    }
    processes = {name: [loads_torch(pid) for pid in pids] for name, pids in replicas().items()}
    assert not any(processes["Gateway"])
    assert all(all(processes[name]) for name in SMALL)


def test_settings_change_under_requests_in_the_same_process_and_a_refused_change_leaves_them(
    server_url: str, on_cpu: Shape
) -> None:
    def change(*overrides: str) -> None:
        deployments(on_cpu)["Gateway"]["user_config"] = {"set": list(overrides)}
        deploy(ServeDeploySchema.model_validate(on_cpu))

    with open_client(server_url) as client, ThreadPoolExecutor() as threads:
        first, processes = version(client), replicas()
        before = call_remote(generator().count_questions)
        assert count_reranked(client) == 3
        call_remote(generator().hold)
        under_way = threads.submit(client.post, "/v1/answer", json={"question": QUESTION})
        wait_until(lambda: call_remote(generator().count_questions) == before + 1)
        change("retrieval.depth=1", "guard.mode=off")
        wait_until(lambda: version(client) != first)
        assert count_reranked(client) == 1
        second = version(client)
        call_remote(generator().resume)
        answer = under_way.result()
        assert answer.json()["pipeline_version"] == first
        assert answer.json()["grounding"]["method"] == "cross-encoder"
        change("retrieval.depth=2", "embedding.model=other")
        wait_until(lambda: "cannot change while the gateway serves: embedding.model" in reload_failure(client))
        wait_until(lambda: client.get("/readyz").status_code == 200)  # a probe can be late on a busy machine
        assert (version(client), count_reranked(client)) == (second, 1)
        change()
        wait_until(lambda: version(client) == first)
        wait_until(lambda: client.get("/readyz").json()["checks"]["settings"]["ok"])
        assert count_reranked(client) == 3
    assert replicas() == processes


def test_an_application_that_cannot_run_is_reported_with_its_reason_and_the_others_continue(
    server_url: str, on_cpu: Shape
) -> None:
    broken = {"name": "broken", "route_prefix": "/broken", "import_path": "fakes.nowhere:build"}
    both = parse_serve_config({**on_cpu, "applications": [*on_cpu["applications"], broken]})
    deploy(both)
    with pytest.raises(ClusterError, match=r"cannot start the application broken: .*fakes\.nowhere"):
        wait_until_ready(both.http_options.host, both.http_options.port, print)
    with open_client(server_url) as client:
        assert count_reranked(client) == 3
    deploy(parse_serve_config(on_cpu))


@pytest.mark.chaos
def test_whichever_replica_is_killed_each_question_is_answered_or_says_in_time_that_it_may_be_asked_again(
    server_url: str,
) -> None:
    for name in (*SMALL, GENERATOR):
        with ThreadPoolExecutor(CLIENTS) as threads:
            clients = [threads.submit(answers, server_url, time.monotonic() + UNDER_FIRE) for _ in range(CLIENTS)]
            time.sleep(1.0)
            victims = replicas()[name]
            assert victims
            for pid in victims:
                psutil.Process(pid).kill()
            timed_answers = [answer for client in clients for answer in client.result()]
        assert len(timed_answers) > CLIENTS
        assert max(seconds for seconds, _ in timed_answers) < DEADLINE + 2.0
        failed = [response for _, response in timed_answers if response.status_code != 200]
        assert all(response.json()["retryable"] for response in failed), [response.text for response in failed]
        wait_until(lambda: is_complete(server_url))


@pytest.mark.chaos
def test_a_generator_that_is_killed_amid_its_answer_ends_the_stream_with_an_error(server_url: str) -> None:
    call_remote(generator().hold)
    with open_client(server_url) as client, ThreadPoolExecutor() as threads:
        answer = threads.submit(stream_lines, client, "/v1/answer", {"question": QUESTION, "stream": True})
        messages = [{"role": "user", "content": QUESTION}]
        chat = threads.submit(
            stream_lines, client, "/v1/chat/completions", {"model": "default", "messages": messages, "stream": True}
        )
        time.sleep(3.0)
        for pid in replicas()[GENERATOR]:
            psutil.Process(pid).kill()
        events, chunks = answer.result(), chat.result()
    wait_until(lambda: is_complete(server_url))
    assert events[-2].startswith("event: run_failed")
    failed = json.loads(events[-1].removeprefix("data: "))
    assert (failed["status"], failed["retryable"]) == (502, True)
    assert any(PIECES[0].strip() in event for event in events)
    assert chunks[-1] == "data: [DONE]"
    assert json.loads(chunks[-2].removeprefix("data: "))["error"]["code"] == "generation"


def answers(url: str, end: float) -> list[tuple[float, httpx2.Response]]:
    """The answers that one client receives one after the other, each with the seconds that it took."""
    timed_answers = []
    with open_client(url) as client:
        while (began := time.monotonic()) < end:
            body = {"question": QUESTION, "timeout_ms": 1000 * DEADLINE}
            response = client.post("/v1/answer", json=body)
            timed_answers.append((time.monotonic() - began, response))
    return timed_answers


def is_complete(url: str) -> bool:
    answer = httpx2.post(f"{url}/v1/answer", json={"question": QUESTION}, timeout=PATIENCE)
    return answer.status_code == 200 and not answer.json()["degraded"] and answer.json()["finish_reason"] == "stop"


def stream_lines(client: httpx2.Client, path: str, body: dict[str, Any]) -> list[str]:
    with client.stream("POST", path, json=body) as response:
        return [line for line in response.iter_lines() if line]


def test_the_local_shape_is_served_and_read_again_when_it_changes(store: Postgres, tmp_path: Path) -> None:
    with open_knowledge_base(store.dsn, settings=list(HASHING)) as knowledge:
        knowledge.ingest(write(tmp_path / "docs", FILES))
    file, shape = tmp_path / "local.yaml", read_shape("local")
    shape["applications"][0]["args"]["set"] = [*HASHING, "answering.budget=none"]
    file.write_text(yaml.safe_dump(shape))
    command = [*RAG, "serve", "--config", str(file), "--port", str(find_free_port()), "--json"]
    environment = {**os.environ, "RAG_STORE__URL": store.dsn}
    with (tmp_path / "stderr").open("w") as stderr, rag_serve(command, environment, stderr) as process:
        url = json.loads(process.stdout.readline())["url"]  # type: ignore[union-attr]
        with open_client(url) as client:
            first = client.post("/v1/answer", json={"question": "How often are keys replaced?"})
            assert "45 days" in first.json()["answer"]
            deployments(shape)["Gateway"]["user_config"]["set"] = ["packing.passages=1"]
            file.write_text(yaml.safe_dump(shape))
            wait_until(lambda: version(client) != first.json()["pipeline_version"])
            file.write_text("applications: 7")
            wait_until(lambda: "nothing was changed" in (tmp_path / "stderr").read_text())
            assert retrieve(client).status_code == 200
    assert process.returncode == 0
    log = (tmp_path / "stderr").read_text()
    assert "waiting for" in log
    assert "Traceback" not in log


@contextmanager
def rag_serve(command: list[str], environment: dict[str, str], stderr: Any) -> Iterator["subprocess.Popen[str]"]:
    pipes = {"stdout": subprocess.PIPE, "stderr": stderr, "text": True}
    with subprocess.Popen(with_interrupts(command), env=environment, **pipes) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.terminate()  # as container runtimes do
            process.wait(PATIENCE)
