"""The question of a message that answers a clarification."""

import re
from collections.abc import Sequence

from rag_core.types import Message

CLARIFICATION = "clarification"
"""The intent of an answer that asks back."""

_NUMBERED = re.compile(r"^(\d+)\. (.+)$", re.MULTILINE)


def continue_question(question: str, history: Sequence[Message]) -> str:
    """The question; if it answers a clarification, the question that was to be clarified, together with it."""
    if not answers_clarification(history):
        return question
    clarified = next((message for message in reversed(history) if message.role == "user"), None)
    chosen = choose_option(question, history[-1].text)
    return f"{clarified.standalone or clarified.text} ({chosen})" if clarified else chosen


def answers_clarification(history: Sequence[Message]) -> bool:
    """True if the message after this history answers a clarification."""
    return bool(history) and history[-1].intent == CLARIFICATION and history[-1].role == "assistant"


def choose_option(text: str, clarification: str) -> str:
    """The option of a clarification's text that a reply chooses by its number; other replies are returned as is."""
    options = {match[1]: match[2] for match in _NUMBERED.finditer(clarification)}
    return options.get(text.strip(" .)"), text)
