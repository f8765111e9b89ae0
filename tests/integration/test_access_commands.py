"""Commands with `--server`, and the events of jobs, with the keys of two tenants."""

from collections.abc import Iterator

import pytest
from access_world import ADA, BOB, EVE, TENANT_WORDS, Person, World, build_services, foreign_words, open_world
from commands import rag_in_process
from fakes.serving import serve_graph

from rag_cli.server_client import job_events, read_ended_job
from rag_core.errors import NotFoundError
from rag_core.storage.postgres import Postgres
from rag_core.wire.responses import API_KEY_VARIABLE

pytestmark = [pytest.mark.postgres, pytest.mark.slow]


@pytest.fixture(scope="module")
def world(module_store: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with open_world(module_store, tmp_path_factory.mktemp("home")) as world:
        yield world


@pytest.fixture(scope="module")
def server(world: World) -> Iterator[str]:
    with serve_graph(build_services(world.store)) as address:
        yield address


def use_key(monkeypatch: pytest.MonkeyPatch, world: World, person: Person) -> None:
    monkeypatch.setenv(API_KEY_VARIABLE, world.key(person))


@pytest.mark.parametrize("person", [ADA, BOB, EVE])
def test_commands_show_what_belongs_to_the_user_of_the_key(
    person: Person, world: World, server: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    use_key(monkeypatch, world, person)
    rag = rag_in_process(capfd)
    commands = [
        ("search", "signing keys", "--server", server, "--json"),
        ("ask", "Who replaces the signing keys?", "--server", server, "--json"),
        ("feedback", world.answers[person.user], "--thumbs", "up", "--server", server, "--json"),
    ]
    runs = [rag(*command) for command in commands]
    assert [ran.code for ran in runs] == [0, 0, 0]
    assert TENANT_WORDS[person.tenant] in runs[0].out
    assert not [word for word in foreign_words(person) for ran in runs if word in ran.out + ran.err]


def test_commands_fail_for_the_answer_of_another_user(
    world: World, server: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for person in (BOB, EVE):
        use_key(monkeypatch, world, person)
        ran = rag_in_process(capfd)("feedback", world.answers[ADA.user], "--thumbs", "up", "--server", server)
        assert (ran.code, ran.out, "no answer" in ran.err) == (2, "", True)


def test_the_events_of_a_job_are_those_of_the_tenant(
    world: World, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for person, stranger in ((ADA, EVE), (EVE, ADA)):
        job = world.belongings[person.tenant].failed_job
        use_key(monkeypatch, world, person)
        events = str(list(job_events(server, job)))
        assert TENANT_WORDS[person.tenant] in events
        assert not [word for word in foreign_words(person) if word in events]
        use_key(monkeypatch, world, stranger)
        with pytest.raises(NotFoundError):
            next(job_events(server, job))
        with pytest.raises(NotFoundError):
            read_ended_job(server, job)
