"""The two messages of a turn."""

from rag_core.retrieval.query.continuation import CLARIFICATION
from rag_core.retrieval.query.intent import SEARCH
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
    intent = understanding.intent
    if answer.finish == CLARIFICATION:
        intent = CLARIFICATION
    elif intent == CLARIFICATION:  # a model has this intent for a vague question, which was answered all the same
        intent = SEARCH
    names = list_names(answer.text)
    return question, Message(role="assistant", text=answer.text, titles=titles, entities=names, intent=intent)
