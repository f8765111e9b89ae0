"""Passages and conversations from the dicts that nodes receive."""

from collections.abc import Mapping, Sequence
from typing import Any

from rag_core.contract.nodes.documents import check_keys
from rag_core.types import Message, Passage
from rag_core.wire.result_dicts import hit_from_result


def passages_from_context(context: Sequence[Mapping[str, Any]]) -> tuple[Passage, ...]:
    """One passage for each item, in the same order. Raises UsageError if one has no `id` or `content`.

    An item's `note` in its metadata precedes it in the prompt.
    """
    passages = []
    for n, item in enumerate(context, 1):
        hit, note = hit_from_result(item), str((item.get("metadata") or {}).get("note", ""))
        chunk = hit.chunk
        passages.append(Passage(n=n, hit=hit, text=chunk.text, start=chunk.start, chunks=(chunk,), note=note))
    return tuple(passages)


def messages_from_history(history: Sequence[Mapping[str, Any]], query: str) -> tuple[Message, ...]:
    """The messages of user and assistant, without a last one that is the query itself.

    Raises UsageError if a turn has no `role` or `content`.
    """
    for turn in history:
        check_keys("turn", turn, ("role", "content"))
    messages = [
        Message(role=turn["role"], text=str(turn["content"]))
        for turn in history
        if turn["role"] in ("user", "assistant")
    ]
    return tuple(messages[:-1] if messages and messages[-1] == Message(role="user", text=query) else messages)
