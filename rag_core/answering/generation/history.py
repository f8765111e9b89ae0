"""The part of a conversation that a generator reads."""

from collections.abc import Callable, Sequence

from rag_core.types import Message


def recent_messages(
    messages: Sequence[Message], max_tokens: int, lengths: Callable[[Sequence[str]], list[int]]
) -> tuple[Message, ...]:
    """The last messages that have at most `max_tokens` together, uncut.

    If earlier messages are left out, the first one is the user's: chat templates require alternating roles.
    """
    recent: list[Message] = []
    remaining = max_tokens
    for message in reversed(messages):
        remaining -= lengths([message.text])[0]
        if remaining < 0:
            break
        recent.append(message)
    while recent and len(recent) < len(messages) and recent[-1].role == "assistant":
        recent.pop()
    return tuple(reversed(recent))
