"""The two messages of a turn."""

from rag_core.storage.graph.extraction import list_names
from rag_core.types import Message, Turn


def turn_messages(turn: Turn) -> tuple[Message, Message]:
    """The question and the answer, as the next turns read them."""
    understanding, answer = turn.understanding, turn.answer
    question = Message(
        role="user",
        text=turn.query.text,
        entities=list_names(turn.query.text),
        intent=understanding.intent,
        standalone=understanding.standalone,
        is_shift=understanding.is_shift,
    )
    cited = sorted(answer.citations, key=lambda citation: citation.spans[:1] or ((0, 0),))
    titles = tuple(dict.fromkeys(citation.title for citation in cited if citation.title))
    reply = Message(
        role="assistant",
        text=answer.text,
        titles=titles,
        entities=list_names(answer.text),
        intent=understanding.intent,
    )
    return question, reply
