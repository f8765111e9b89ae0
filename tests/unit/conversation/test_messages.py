"""The messages that a turn leaves for the next turns."""

import pytest

from rag_core.conversation.messages import turn_messages
from rag_core.types import Answer, Finish, Query, Turn, Understanding


def test_both_messages_have_their_names_with_the_most_frequent_first() -> None:
    question = Query(text="Who guards the locks of Skerra, and does Skerra pay Rask?")
    answer = Answer(text="It is the Harbour Board. We know that the Harbour Board pays Rask.")
    messages = turn_messages(Turn(query=question, understanding=Understanding(standalone=question.text), answer=answer))
    assert [message.entities for message in messages] == [("Skerra", "Rask"), ("Harbour Board", "Rask")]


@pytest.mark.parametrize(("finish", "intent"), [("stop", "search"), ("clarification", "clarification")])
def test_only_an_answer_that_asks_back_has_the_intent_clarification(finish: Finish, intent: str) -> None:
    understanding = Understanding(standalone="It?", intent="clarification")
    turn = Turn(query=Query(text="It?"), understanding=understanding, answer=Answer(text="Yes.", finish=finish))
    assert [message.intent for message in turn_messages(turn)] == ["clarification", intent]
