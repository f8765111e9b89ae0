"""Clients of a gateway that requires API keys: the commands with `--server`, and OpenAI's own."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import openai
import pytest
from commands import Rag, rag_in_process
from fakes.serving import scripted_graph, serve_graph
from rich.console import Console

from rag_cli.push import Push, PushRequest
from rag_core.scopes import ROLES, Scope
from rag_core.storage.keys import KeyFinder, Keys
from rag_core.storage.postgres import Postgres
from serve.authentication.keys import KeyAuthenticator

pytestmark = pytest.mark.postgres


@pytest.fixture
def url(store: Postgres) -> Iterator[str]:
    with serve_graph(scripted_graph(postgres=store, authenticator=KeyAuthenticator(KeyFinder(store)))) as url:
        yield url


@pytest.fixture
def rag(capfd: pytest.CaptureFixture[str]) -> Rag:
    return rag_in_process(capfd)


def create_key(store: Postgres, scopes: frozenset[Scope] = ROLES["reader"]) -> str:
    with store.connect() as connection:
        return Keys(connection, "harbour-team").create(scopes).text


def commands(url: str, folder: Path) -> Sequence[Sequence[object]]:
    """Every command that takes `--server`."""
    file = folder / "keys.md"
    file.write_text("# Keys\n")
    return (
        ("search", "keys", "--server", url),
        ("ask", "keys", "--server", url),
        ("feedback", "ans_1", "--thumbs", "up", "--server", url),
        ("ingest", file, "--server", url),
    )


def test_every_command_without_a_key_ends_with_an_error_that_names_the_variable(
    rag: Rag, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAG_API_KEY", raising=False)
    for command in commands(url, tmp_path):
        ran = rag(*command)
        assert (ran.code, "set RAG_API_KEY to a key that `rag keys create` printed" in ran.err) == (2, True), ran.err


def test_every_command_whose_key_lacks_a_scope_names_it(
    rag: Rag, url: str, store: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = create_key(store, frozenset({"evaluate:write"}))
    monkeypatch.setenv("RAG_API_KEY", key)
    scopes = ("retrieve:read", "chat:write", "chat:write", "ingest:write")
    for command, scope in zip(commands(url, tmp_path), scopes, strict=True):
        ran = rag(*command)
        assert ran.code == 2
        assert f"this request needs the scope {scope}" in ran.err
        assert "set RAG_API_KEY to another key" in ran.err
        assert key not in ran.err + ran.out


def test_the_commands_work_with_a_key(rag: Rag, url: str, store: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAG_API_KEY", create_key(store))
    assert rag("search", "keys", "--server", url, "--json").json["results"] == []
    assert "answer" in rag("ask", "keys", "--server", url, "--json").json


@pytest.mark.parametrize(("more", "batches"), [((), [2, 2, 1, 2]), (("ingest:bulk",), [5, 2])])
def test_many_files_are_sent_in_requests_that_the_key_allows(
    store: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[Scope, ...], batches: Sequence[int]
) -> None:
    monkeypatch.setattr("rag_cli.push.MAX_BATCH_FILES", 5)
    monkeypatch.setattr("rag_cli.push.MAX_FILES_WITHOUT_BULK", 2)
    monkeypatch.setenv("RAG_API_KEY", create_key(store, ROLES["writer"] | {*more}))
    for number in range(7):
        (tmp_path / f"{number}.md").write_text(f"# {number}")
    request = PushRequest(
        sources=[str(tmp_path)], collection="docs", no_prune=True, yes=False, checksum=False, meta=None
    )
    graph = scripted_graph(postgres=store, authenticator=KeyAuthenticator(KeyFinder(store)))
    ingestion = graph.settings.ingestion.model_copy(update={"bulk_documents": 2})
    graph = replace(graph, settings=graph.settings.model_copy(update={"ingestion": ingestion}))
    with serve_graph(graph) as url:
        sent = Push(server=url, request=request, profile="")
        sent.send(Console(quiet=True))
    assert list(sent.jobs.values()) == batches


def test_openais_client_sends_the_key(url: str, store: Postgres) -> None:
    question = [{"role": "user", "content": "keys"}]
    with openai.OpenAI(base_url=f"{url}/v1", api_key=create_key(store), max_retries=0) as client:
        assert client.chat.completions.create(model="default", messages=question).choices[0].message.content
        chunks = list(client.chat.completions.create(model="default", messages=question, stream=True))
        assert chunks[-1].choices[0].finish_reason == "stop"


@pytest.mark.parametrize(
    ("scopes", "error", "message"),
    [
        ((), openai.AuthenticationError, "the API key is not valid"),
        (("evaluate:write",), openai.PermissionDeniedError, "needs the scope retrieve:read"),
    ],
)
def test_openais_client_raises_its_own_errors(
    url: str, store: Postgres, scopes: tuple[Scope, ...], error: type[openai.APIStatusError], message: str
) -> None:
    key = create_key(store, frozenset(scopes)) if scopes else "none"
    client = openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)
    with client, pytest.raises(error, match=message):
        client.models.list()
