"""What conversations promise, in memory and in Postgres."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import pytest

from rag_core.conversation.in_memory import InMemoryConversations
from rag_core.conversation.postgres import PostgresConversations
from rag_core.protocols import Conversations
from rag_core.storage.conversations import StoredConversations
from rag_core.storage.postgres import Postgres
from rag_core.types import Answer, Message, Query, Turn, Understanding

T = TypeVar("T")
QUERY = Query(text="who?", tenant="tenant-under-test", session_id="s")


class Backend(Protocol):
    """The two implementations, as these tests need them."""

    def ask(self, question: Callable[[Conversations], Awaitable[T]]) -> T: ...


class InMemory:
    def __init__(self) -> None:
        self._conversations = InMemoryConversations()

    def ask(self, question: Callable[[Conversations], Awaitable[T]]) -> T:
        return _run(question(self._conversations))


class InPostgres:
    """Conversations in Postgres. Each question gets a new object, so only what the store holds is remembered."""

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres

    def ask(self, question: Callable[[Conversations], Awaitable[T]]) -> T:
        async def run_with_store() -> T:
            stored = StoredConversations(self._postgres)
            try:
                return await question(PostgresConversations(stored))
            finally:
                await stored.close()

        return _run(run_with_store())


def _run(work: Awaitable[T]) -> T:
    async def run() -> T:
        return await work

    return asyncio.run(run())


@pytest.fixture(params=["memory", pytest.param("postgres", marks=pytest.mark.postgres)])
def backend(request: pytest.FixtureRequest) -> Backend:
    return InMemory() if request.param == "memory" else InPostgres(request.getfixturevalue("store"))


def turn(number: int, **changes: Any) -> Turn:
    query = replace(QUERY, text=f"question {number}", **changes)
    return Turn(query=query, understanding=Understanding(standalone=query.text), answer=Answer(text=f"answer {number}"))


def remember(backend: Backend, *turns: Turn) -> None:
    async def work(conversations: Conversations) -> None:
        for next_turn in turns:
            await conversations.remember(next_turn)

    backend.ask(work)


def history(backend: Backend, limit: int = 100, **changes: Any) -> list[str]:
    return texts(backend.ask(lambda conversations: conversations.history(replace(QUERY, **changes), limit)))


def texts(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages]


def test_the_history_is_in_the_order_of_the_turns(backend: Backend) -> None:
    remember(backend, turn(1), turn(2))
    assert history(backend) == ["question 1", "answer 1", "question 2", "answer 2"]


def test_a_short_history_begins_with_the_first_message(backend: Backend) -> None:
    remember(backend, *(turn(number) for number in range(1, 5)))
    assert history(backend, 2) == ["question 1", "question 4", "answer 4"]
    assert history(backend, 7) == history(backend, 8) == history(backend, 9)
    assert history(backend, 0) == ["question 1"]


def test_a_session_without_turns_has_no_history(backend: Backend) -> None:
    assert history(backend) == []
    remember(backend, turn(1, session_id=""))
    assert history(backend, session_id="") == []


def test_what_was_understood_comes_back(backend: Backend) -> None:
    understanding = Understanding(standalone="What of it?", intent="finalization", is_shift=True, drift=0.5)
    remember(backend, replace(turn(1), understanding=understanding))
    question, answer = backend.ask(lambda conversations: conversations.history(QUERY, 2))
    assert (question.role, question.standalone, question.is_shift) == ("user", "What of it?", True)
    assert (answer.role, question.intent, answer.intent) == ("assistant", "finalization", "finalization")


def test_others_have_another_conversation_under_the_same_id(backend: Backend) -> None:
    remember(backend, turn(1, groups=("staff", "it")), turn(2), turn(3, tenant="another"))
    assert history(backend, groups=("it", "staff")) == ["question 1", "answer 1"]
    assert history(backend) == ["question 2", "answer 2"]
    assert history(backend, tenant="another") == ["question 3", "answer 3"]
    assert history(backend, groups=("staff",)) == history(backend, session_id="t") == []


def test_a_session_goes_on_in_another_collection(backend: Backend) -> None:
    remember(backend, turn(1, collection="one"), turn(2, collection="two"))
    assert history(backend, collection="three") == ["question 1", "answer 1", "question 2", "answer 2"]


def test_a_turn_that_is_sent_again_is_stored_once_and_does_not_see_itself(backend: Backend) -> None:
    remember(backend, turn(1, answer_id="ans_1"), turn(2, answer_id="ans_2"), turn(1, answer_id="ans_1"))
    assert history(backend) == ["question 1", "answer 1", "question 2", "answer 2"]
    assert history(backend, answer_id="ans_2") == ["question 1", "answer 1"]


def test_of_turns_at_the_same_time_none_is_lost_doubled_or_torn(backend: Backend) -> None:
    async def work(conversations: Conversations) -> None:
        turns = [turn(number % 20, answer_id=f"ans_{number % 20}") for number in range(40)]
        await asyncio.gather(*(conversations.remember(next_turn) for next_turn in turns))

    backend.ask(work)
    stored = history(backend)
    assert sorted(stored[::2]) == sorted(f"question {number}" for number in range(20))
    assert stored[1::2] == [text.replace("question", "answer") for text in stored[::2]]


def test_text_that_postgres_cannot_hold_is_stored_without_it(backend: Backend) -> None:
    remember(backend, replace(turn(1), answer=Answer(text="nul \0 and \ud800")))
    assert history(backend)[1].startswith("nul ")
