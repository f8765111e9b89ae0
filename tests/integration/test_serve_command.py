"""The gateway as users start it: on Ray Serve, asked over the network."""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from hosts import RAG, with_interrupts
from trees import write
from waiting import wait_until

from benchmarks.free_port import find_free_port
from rag_core import open_knowledge_base
from rag_core.storage.postgres import Postgres

pytestmark = [pytest.mark.postgres, pytest.mark.ray, pytest.mark.model, pytest.mark.slow]

FILES = {
    "keys.md": "# Keys\n\nSigning keys are replaced every 45 days. The harbour master keeps a copy in the red box.",
    "locks.md": "# Locks\n\nThe sea lock opens two hours before high water. Boats wait at the pontoon.",
}
SETTINGS = "profiles: {lexical: {retrieval: {type: bm25}}}\n"
QUESTION = {"question": "How often are the signing keys replaced?"}


@pytest.fixture(scope="module")
def environment(module_store: Postgres, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    with open_knowledge_base(module_store.dsn) as knowledge:
        knowledge.ingest(write(tmp_path_factory.mktemp("served"), FILES))
    return {**os.environ, "RAG_STORE__URL": module_store.dsn, "RAG_ANSWERING__BUDGET": "none"}


@pytest.fixture(scope="module")
def settings_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("settings") / "rag.yaml"
    file.write_text(SETTINGS)
    return file


@pytest.fixture(scope="module")
def serve_output(environment: dict[str, str], settings_file: Path) -> Iterator[dict[str, Any]]:
    """What `rag serve --json` prints."""
    command = [*RAG, "serve", "--port", str(find_free_port()), "--config", str(settings_file), "--json"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(with_interrupts(command), env=environment, **pipes) as process:  # type: ignore[call-overload]
        line = process.stdout.readline()
        assert line, process.stderr.read()
        yield json.loads(line)
        process.send_signal(signal.SIGINT)
        output, complaint = process.communicate(timeout=60)
    assert process.returncode == 130
    assert not output
    assert "Traceback" not in complaint


@pytest.fixture
def url(serve_output: dict[str, Any]) -> str:
    return str(serve_output["url"])


def test_the_place_of_the_access_log_is_printed_and_requests_are_in_it(serve_output: dict[str, Any]) -> None:
    place = Path(serve_output["access_log"])
    with httpx2.Client(base_url=serve_output["url"], timeout=60) as client:
        id = client.post("/v1/answer", json=QUESTION).headers["x-correlation-id"]

    def lines() -> list[dict[str, Any]]:
        entries = [json.loads(line) for file in place.parent.glob(place.name) for line in file.read_text().splitlines()]
        return [line for line in entries if line["correlation_id"] == id]

    wait_until(lambda: bool(lines()))
    (line,) = lines()
    assert (line["method"], line["route"], line["status"], line["client"]) == ("POST", "/v1/answer", 200, "127.0.0.1")
    assert line["tenant"] == "default-tenant"
    assert line["duration_ms"] > 0


def test_answers_are_streamed_and_failures_are_problems_through_ray_serve(url: str) -> None:
    with httpx2.Client(base_url=url, timeout=60) as client:
        wait_until(lambda: bool(client.get("/readyz").json()["ok"]))
        answer = client.post("/v1/answer", json=QUESTION).json()
        assert answer["answer"].startswith("Signing keys are replaced every 45 days. [1]")
        with client.stream("POST", "/v1/answer", json={**QUESTION, "stream": True}) as response:
            frames = [line for line in response.iter_lines() if line.startswith('data: {"text"')]
        assert "".join(json.loads(frame.removeprefix("data: "))["text"] for frame in frames) == answer["answer"]
        hits = client.post("/v1/retrieve", json={"query": "sea lock", "top_k": 1}).json()["results"]
        assert hits[0]["title"] == "Locks"
        missing = client.post("/v1/retrieve", json={"query": "?", "collection": "nowhere"})
        assert (missing.status_code, missing.headers["content-type"]) == (404, "application/problem+json")


def test_the_gateway_and_its_metrics_listen_on_loopback_only(url: str) -> None:
    port = int(url.rpartition(":")[2])
    wait_until(lambda: "ray_serve_" in httpx2.get(f"http://127.0.0.1:{port + 1000}/metrics").text)  # some seconds later
    listening = [c.laddr for c in psutil.net_connections("tcp") if c.status == "LISTEN"]
    addresses = {address.ip for address in listening if address.port in (port, port + 1000)}
    assert addresses == {"127.0.0.1"}


@pytest.mark.parametrize("id", [b"\xff\xfe", b"a\xc3(", b"x" * 300])
def test_a_request_id_of_any_bytes_is_no_error_and_one_id_is_sent_back(url: str, id: bytes) -> None:
    for path, status in (("/healthz", 200), ("/nowhere", 404), ("/-/healthz", 200)):
        response = httpx2.get(url + path, headers=[(b"X-Request-ID", id), (b"X-Correlation-ID", id)])
        ids = response.headers.get_list("x-request-id")
        assert (response.status_code, len(ids), len(ids[0])) == (status, 1, 36)
    assert httpx2.get(f"{url}/healthz", headers={"X-Request-ID": "mine"}).headers.get_list("x-request-id") == ["mine"]


def test_commands_ask_a_server_as_they_ask_the_store(url: str, environment: dict[str, str]) -> None:
    elsewhere = {**os.environ, "RAG_STORE__URL": "host=/nowhere"}

    def rag(*arguments: str, code: int = 0) -> str:
        command = [*RAG, *arguments, "--server", url]
        process = subprocess.run(command, env=elsewhere, capture_output=True, text=True, check=False)
        assert process.returncode == code, process.stderr
        return process.stdout

    local = subprocess.run(
        [*RAG, "ask", QUESTION["question"], "--json"], env=environment, capture_output=True, check=True
    )
    remote = json.loads(rag("ask", QUESTION["question"], "--json"))
    same = ("answer", "citations", "verdict", "confidence", "finish")
    assert {key: remote[key] for key in same} == {key: json.loads(local.stdout)[key] for key in same}
    assert rag("ask", QUESTION["question"]).startswith("Signing keys are replaced every 45 days. [1]")
    assert rag("search", "sea lock", "-k", "1").startswith("1. Locks")
    assert (
        json.loads(rag("search", "?", "--collection", "nowhere", "--json", code=2))["error"]["type"] == "NotFoundError"
    )
    assert (
        "cannot be used with --server"
        in json.loads(rag("search", "?", "--context", "1", "--json", code=2))["error"]["message"]
    )


def test_a_server_hears_the_profile_and_nothing_that_is_its_own(url: str) -> None:
    def rag(*arguments: str) -> Any:
        command = [*RAG, *arguments, "--server", url, "--json"]
        return json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)

    explained = rag("ask", QUESTION["question"], "--explain")
    assert {source["n"] for source in explained["citations"]} <= {passage["n"] for passage in explained["passages"]}
    assert "nosuch" in rag("search", "lock", "--profile", "nosuch")["error"]["message"]
    refused = rag("search", "lock", "--set", "a.b=1", "--tenant", "t", "--store", "embedded", "--config", "x.yaml")
    assert "cannot be used with --server: --config, --set, --store, --tenant" in refused["error"]["message"]
    assert "cannot be used with --server: --tenant" in rag("ask", "lock", "--tenant", "t")["error"]["message"]
    assert "cannot be used with --server" in rag("search", "lock", "--compare", "pmc")["error"]["message"]


def test_a_request_names_any_profile_of_the_file(url: str) -> None:
    body = {"query": QUESTION["question"]}
    with httpx2.Client(base_url=url, timeout=60) as client:
        lexical = client.post("/v1/retrieve", json={**body, "profile": "lexical"}).json()
        both = client.post("/query", json={"text": QUESTION["question"]}).json()
        rows = {row["name"]: row for row in client.get("/v1/profiles").json()["data"]}
        models = [model["id"] for model in client.get("/v1/models").json()["data"]]
    assert {name for hit in lexical["results"] for name in hit["retrievers"]} == {"bm25"}
    assert {name for hit in both["results"] for name in hit["retrievers"]} == {"dense", "bm25"}
    assert (rows["lexical"]["loaded"], rows["default"]["default"], rows["gpu"]["serving"]) == (True, True, False)
    assert {"default:lexical", "default:default", "default"} <= set(models)


def test_a_changed_settings_file_applies_to_new_requests_and_an_invalid_one_changes_nothing(
    url: str, settings_file: Path
) -> None:
    def version(profile: str) -> str:
        body = client.post("/v1/retrieve", json={"query": "lock", "profile": profile}).json()
        return str(body["pipeline_version"])

    def reload_error() -> str:
        return str(client.get("/readyz").json()["checks"]["settings"].get("reason", ""))

    with httpx2.Client(base_url=url, timeout=60) as client:
        before, lexical = version("default"), version("lexical")
        settings_file.write_text("answering: {depth: 31}\nprofiles: {lexical: {retrieval: {type: bm25, k1: 1.2}}}\n")
        wait_until(lambda: version("default") != before)
        assert version("lexical") != lexical
        changed = version("default")
        settings_file.write_text("answering: {depth: many}\n")
        wait_until(lambda: "answering.depth" in reload_error())
        assert version("default") == changed
        settings_file.write_text("chunking: {tokens: 90}\n")
        wait_until(lambda: "cannot change while the gateway serves: chunking.tokens" in reload_error())
        settings_file.write_text(SETTINGS)
        wait_until(lambda: version("default") == before)
        wait_until(lambda: not reload_error())


def test_an_unreachable_server_is_reported() -> None:
    command = [*RAG, "ask", "?", "--server", f"http://127.0.0.1:{find_free_port()}", "--json"]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 3
    assert "cannot reach the server" in json.loads(process.stdout)["error"]["message"]


def test_without_keys_it_listens_on_loopback_only(environment: dict[str, str]) -> None:
    command = [*RAG, "serve", "--host", "0.0.0.0", "--json"]  # noqa: S104
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 2
    assert json.loads(process.stdout)["error"]["message"].endswith("host must be 127.0.0.1, got 0.0.0.0")


def test_a_port_in_use_is_reported(environment: dict[str, str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        command = [*RAG, "serve", "--port", port, "--json"]
        process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 3
    assert f"cannot use port {port} of 127.0.0.1" in json.loads(process.stdout)["error"]["message"]
