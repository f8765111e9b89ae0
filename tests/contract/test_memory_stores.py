"""What a memory store promises, in memory and in Postgres."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest

from rag_core.contract.nodes import InMemoryStore, PostgresMemoryStore, Turn
from rag_core.contract.nodes.memory_store import SessionStore
from rag_core.errors import UsageError
from rag_core.storage.fsck import find_violations
from rag_core.storage.postgres import Postgres

T = TypeVar("T")
NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)


@pytest.fixture(params=["memory", pytest.param("postgres", marks=pytest.mark.postgres)])
def memory(request: pytest.FixtureRequest) -> SessionStore:
    if request.param == "memory":
        return InMemoryStore()
    return PostgresMemoryStore(request.getfixturevalue("store"), "tenant-under-test", "postgres")


def turn(text: str, role: str = "user", minute: int = 0, **metadata: Any) -> Turn:
    timestamp = NOW + timedelta(minutes=minute)
    return Turn(session_id="s", role=role, content=text, timestamp=timestamp, metadata=metadata)  # type: ignore[arg-type]


def save(memory: SessionStore, *turns: Turn, session_id: str = "s") -> None:
    async def work() -> None:
        for next_turn in turns:
            await memory.save_turn(session_id, next_turn)

    asyncio.run(work())


def ask(work: Callable[[], Awaitable[T]]) -> T:
    async def run() -> T:
        return await work()

    return asyncio.run(run())


def history(memory: SessionStore, limit: int = 10, session_id: str = "s") -> list[Turn]:
    return ask(lambda: memory.get_history(session_id, limit))


def test_turns_come_back_as_they_were_saved_and_in_their_order(memory: SessionStore) -> None:
    turns = [
        turn("Be brief.", "system"),
        turn("Who keeps the keys?", intent="search", entities=["Ada"], extra={"deep": [1, None]}),
        turn("Ada.", "assistant", participant="bot"),
    ]
    save(memory, *turns)
    assert history(memory) == turns
    assert history(memory, 2) == turns[1:]
    assert history(memory, 0) == history(memory, session_id="another") == []


def test_a_turn_that_is_saved_again_is_stored_once(memory: SessionStore) -> None:
    first = turn("one")
    save(memory, first, turn("two"), first)
    assert [saved_turn.content for saved_turn in history(memory)] == ["one", "two"]


def test_a_turn_that_comes_late_does_not_set_the_clock_of_its_session_back(memory: SessionStore) -> None:
    early, late = turn("one", minute=1), turn("two", minute=9)
    save(memory, late, early, early)
    save(memory, turn("three", minute=5), session_id="other")
    assert ask(lambda: memory.get_session("s")).last_activity_at == late.timestamp
    assert [session.id for session in ask(memory.list_sessions)] == ["other", "s"]


@pytest.mark.parametrize("metadata", [{"intent": None, "entities": "Ada"}, {"entities": [{"name": "Ada"}]}])
def test_metadata_has_any_shape(memory: SessionStore, metadata: dict[str, Any]) -> None:
    saved = turn("one", **metadata)
    save(memory, saved)
    assert history(memory) == [saved]


def test_text_that_postgres_cannot_hold_is_saved_without_it(memory: SessionStore) -> None:
    save(memory, turn("nul \0 and \ud800", participant="a\0b", deep=[{"n\0": "\0"}]))
    (saved,) = history(memory)
    assert saved.content.startswith("nul ")
    assert len(ask(lambda: memory.get_session("s")).participants) == 1


@pytest.mark.postgres
def test_a_session_id_that_postgres_cannot_hold_is_a_usage_error(store: Postgres) -> None:
    memory = PostgresMemoryStore(store, "tenant-under-test", "postgres")
    for session_id in ("a\0b", "a\ud800b"):
        with pytest.raises(UsageError, match="session_id must not contain NUL"):
            save(memory, turn("one"), session_id=session_id)


def test_a_session_begins_when_it_is_asked_for_and_knows_who_took_part(memory: SessionStore) -> None:
    assert ask(lambda: memory.get_session("s")).participants == ()
    save(
        memory, turn("one", participant="ada"), turn("two", "assistant", 5), turn("three", minute=9, participant="ada")
    )
    session = ask(lambda: memory.get_session("s"))
    assert (session.id, session.participants) == ("s", ("ada", "assistant"))
    assert session.last_activity_at == NOW + timedelta(minutes=9)


def test_sessions_are_listed_by_their_last_activity_and_can_be_closed(memory: SessionStore) -> None:
    save(memory, turn("one", minute=2), session_id="late")
    save(memory, turn("two", minute=3), session_id="later")
    assert [session.id for session in ask(memory.list_sessions)] == ["late", "later"]
    ask(lambda: memory.delete_session("late"))
    assert [session.id for session in ask(memory.list_sessions)] == ["later"]
    assert history(memory, session_id="late") == []
    assert len(history(memory, session_id="later")) == 1


@pytest.mark.postgres
def test_stores_of_other_names_and_tenants_have_other_sessions(store: Postgres) -> None:
    one = PostgresMemoryStore(store, "tenant-under-test", "postgres")
    save(one, turn("one"))
    others = ("tenant-under-test", "postgres:chat"), ("another", "postgres")
    assert [history(PostgresMemoryStore(store, *other)) for other in others] == [[], []]
    assert len(history(one)) == 1
    with store.connect("rag_worker") as connection:
        assert find_violations(connection) == []
