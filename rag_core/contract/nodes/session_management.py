"""The node that opens and closes sessions."""

from datetime import UTC, datetime
from functools import partial
from typing import Literal

from pydantic import Field

from rag_core.contract.nodes.memory_store import InMemoryStore, open_memory_store
from rag_core.contract.nodes.node_config import NodeConfig
from rag_core.contract.nodes.running import Inputs, Outputs, read_input, run_node
from rag_core.errors import UsageError
from rag_core.settings import load_settings


class SessionManagementConfig(NodeConfig):
    """`memory_store` names a store of this process. A session expires after `session_ttl` seconds without a turn."""

    node_type: Literal["session_management"] = "session_management"
    memory_store: str = Field(min_length=1)
    session_ttl: int = Field(3600, ge=1)


class SessionManagementNode:
    """In: `session_id`, and `action`: `open` (the default) or `close`. Out: `session`, `closed`, `active_sessions`.

    Each run also closes the sessions of the tenant that have expired. `closed` holds the ids of all that it closed, and
    `session` is empty after `close`.
    """

    def __init__(self, config: SessionManagementConfig) -> None:
        self.config = config

    async def run(self, inputs: Inputs) -> Outputs:
        skipped: Outputs = {"session": {}, "closed": [], "active_sessions": 0}
        return await run_node(self.config, partial(self._manage, inputs), skipped)

    async def _manage(self, inputs: Inputs) -> Outputs:
        session_id, action = str(read_input(inputs, "session_id")), inputs.get("action", "open")
        if action not in ("open", "close"):
            raise UsageError(f"action must be open or close, got {action!r}")
        store = open_memory_store(load_settings().tenant, self.config.memory_store)
        closed = _find_expired(store, self.config.session_ttl, datetime.now(UTC))
        if action == "close":
            closed = list(dict.fromkeys((*closed, session_id)))
        for id in closed:
            store.delete_session(id)
        session = {} if action == "close" else (await store.get_session(session_id)).model_dump()
        return {"session": session, "closed": closed, "active_sessions": len(store.list_sessions())}


def _find_expired(store: InMemoryStore, ttl: float, now: datetime) -> list[str]:
    return [session.id for session in store.list_sessions() if (now - session.last_activity_at).total_seconds() > ttl]
