"""How much of a conversation a generator reads."""

from collections.abc import Callable, Iterator, Sequence

from rag_core.types import Message


def recent(said: Sequence[Message], tokens: int, lengths: Callable[[Sequence[str]], list[int]]) -> tuple[Message, ...]:
    """The last messages, whole, that have so many tokens together. Where earlier ones are left out, they begin with the
    user's: chat templates want the two in turn."""
    last = list(_fitting(said, tokens, lengths))
    while last and len(last) < len(said) and last[-1].role == "assistant":
        last.pop()
    return tuple(reversed(last))


def _fitting(said: Sequence[Message], tokens: int, lengths: Callable[[Sequence[str]], list[int]]) -> Iterator[Message]:
    """The last one first."""
    left = tokens
    for message in reversed(said):
        left -= lengths([message.text])[0]
        if left < 0:
            return
        yield message
