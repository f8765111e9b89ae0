"""The node that keeps the history of a conversation."""

import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

from pydantic import Field

from rag_core.contract.nodes.memory_store import BaseMemoryStore, drop_expired_turns, open_memory_store
from rag_core.contract.nodes.memory_turns import Turn
from rag_core.contract.nodes.node_config import NodeConfig
from rag_core.contract.nodes.running import Inputs, Outputs, as_node, read_input
from rag_core.conversation.in_memory import MAX_MESSAGES
from rag_core.settings import load_settings
from rag_core.text.stop_words import ALL_STOP_WORDS

_WORD = re.compile(r"[^\W\d_]{3,}")


class ConversationStateConfig(NodeConfig):
    """`memory_store` is `postgres`, or names a store of this process.

    A session ends after `session_ttl` seconds without a turn.
    """

    node_type: Literal["conversation_state"] = "conversation_state"
    memory_store: str = Field(min_length=1)
    max_turns: int = Field(50, ge=1)
    session_ttl: int = Field(3600, ge=1)


class ConversationStateNode:
    """Inputs: `session_id` and `user_message`. Outputs: both the last `max_turns` turns and facts about all turns.

    The turns end with this message. After the answer, the node can be run with `assistant_message` instead, to save
    that. `topic` is the word that the user said most. `store` is used instead of the one of this process.
    """

    def __init__(self, config: ConversationStateConfig, store: BaseMemoryStore | None = None) -> None:
        self.config, self._store = config, store

    @as_node(lambda inputs: _describe_turns(str(inputs.get("session_id", "")), []))
    async def run(self, inputs: Inputs) -> Outputs:
        store = self._store or open_memory_store(load_settings(), self.config.memory_store)
        session_id, now = str(read_input(inputs, "session_id")), datetime.now(UTC)
        turns = await store.get_history(session_id, MAX_MESSAGES)
        turns = drop_expired_turns(turns, self.config.session_ttl, now)
        name = "assistant_message" if "assistant_message" in inputs else "user_message"
        role: Literal["assistant", "user"] = "assistant" if name == "assistant_message" else "user"
        turn = Turn(session_id=session_id, role=role, content=str(read_input(inputs, name)), timestamp=now)
        await store.save_turn(session_id, turn)
        return _describe_turns(session_id, [*turns, turn], self.config.max_turns)


def _describe_turns(session_id: str, turns: Sequence[Turn], max_turns: int = MAX_MESSAGES) -> Outputs:
    return {
        "session_id": session_id,
        "conversation_history": [{"role": turn.role, "content": turn.content} for turn in turns[-max_turns:]],
        "metadata": {"turn_count": len(turns), "topic": _find_topic(turns)},
    }


def _find_topic(turns: Sequence[Turn]) -> str:
    """The most frequent word of the user that is not a stop word, the first of several; empty if there is none."""
    words = [word for turn in turns if turn.role == "user" for word in _WORD.findall(turn.content.lower())]
    counts = Counter(word for word in words if word not in ALL_STOP_WORDS)
    return next((word for word, _ in counts.most_common(1)), "")
