"""Conversations with a knowledge base: what is asked back, and what is repeated."""

from collections.abc import Iterator
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal
from trees import write

from rag_core import KnowledgeBase, open_knowledge_base
from rag_core.events import Event, RunFinished
from rag_core.storage.postgres import Postgres

pytestmark = [pytest.mark.postgres, pytest.mark.model]

CITIES = ("Oslo", "Bergen", "Turku")
FILES = {
    **{
        f"{city}.md": f"# {city} office\n\nThe office in {city} is near the station.\n\n"
        f"The opening time of the {city} office is {n}:15 in the morning.\n"
        for n, city in enumerate(CITIES, 7)
    },
    "keys.md": "# Signing keys\n\nSigning keys are replaced every 45 days.\n\nTwo people carry them.\n\n"
    "The old signing keys are kept in the red box.\n",
    "canteen.md": "# Canteen\n\nSoup is served at noon. On Fridays there is fish.\n",
}


@pytest.fixture(scope="module")
def knowledge(module_store: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KnowledgeBase]:
    with open_knowledge_base(module_store.dsn) as knowledge:
        knowledge.ingest(write(tmp_path_factory.mktemp("documents"), FILES))
        yield knowledge


def test_a_question_about_one_of_three_offices_is_asked_back_and_then_answered(knowledge: KnowledgeBase) -> None:
    asked = knowledge.ask("What is the opening time of the office?", session_id="offices")
    assert asked.answer.finish == "clarification"
    assert asked.clarification is not None
    assert set(asked.clarification.options) == {f"{city} office" for city in CITIES}
    answered = knowledge.ask("Bergen office", session_id="offices")
    assert answered.answer.finish != "clarification"
    assert answered.answer.citations[0].title == "Bergen office"
    assert "8:15" in answered.answer.text


def test_a_question_that_names_its_office_is_answered_at_once(knowledge: KnowledgeBase) -> None:
    reply = knowledge.ask("What is the opening time of the office in Turku?")
    assert (reply.clarification, reply.answer.citations[0].title) == (None, "Turku office")


def test_what_else_is_known_is_new_and_then_nothing_is(knowledge: KnowledgeBase) -> None:
    first = knowledge.ask("How often are the signing keys replaced?", session_id="keys")
    assert "every 45 days" in first.answer.text
    more = knowledge.ask("What else about the signing keys?", session_id="keys")
    assert "45 days" not in more.answer.text
    assert "red box" in more.answer.text
    end = knowledge.ask("What else about the signing keys?", session_id="keys")
    assert end.answer.finish == "repeated"
    assert end.answer.text.endswith("The sources say nothing more about this.")
    assert end.answer.citations


def test_the_same_question_gets_the_same_answer_again(knowledge: KnowledgeBase) -> None:
    first, again = (knowledge.ask("When is soup served?", session_id="soup") for _ in range(2))
    assert again.answer.finish == "repeated"
    assert again.answer.text.startswith(first.answer.text)
    assert again.answer.citations == first.answer.citations


def test_an_interrupt_while_an_answer_is_being_started_cancels_it(
    knowledge: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, calls, events = BlockingPortal.start_task_soon, [], list[Event]()

    def start_and_interrupt(portal: BlockingPortal, *arguments: Any) -> Any:
        future = start(portal, *arguments)
        calls.append(arguments)
        if len(calls) == 2:  # the first one creates the scope
            raise KeyboardInterrupt
        return future

    knowledge.load(answering=True)
    with monkeypatch.context() as patch:
        patch.setattr(BlockingPortal, "start_task_soon", start_and_interrupt)
        with pytest.raises(KeyboardInterrupt):
            knowledge.ask("When is soup served?", on_event=events.append)
    knowledge.ask("When is soup served?")  # takes as long as the first question would have
    assert not any(isinstance(event, RunFinished) for event in events)
