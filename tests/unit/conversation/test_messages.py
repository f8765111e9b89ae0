"""The messages that a turn leaves for the next turns."""

from rag_core.conversation.messages import turn_messages
from rag_core.types import Answer, Query, Turn, Understanding


def test_both_messages_have_their_names_with_the_most_frequent_first() -> None:
    question = Query(text="Who guards the locks of Skerra, and does Skerra pay Rask?")
    answer = Answer(text="It is the Harbour Board. We know that the Harbour Board pays Rask.")
    messages = turn_messages(Turn(query=question, understanding=Understanding(standalone=question.text), answer=answer))
    assert [message.entities for message in messages] == [("Skerra", "Rask"), ("Harbour Board", "Rask")]
