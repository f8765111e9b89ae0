"""The node that opens and closes sessions."""

from datetime import UTC, datetime, timedelta
from typing import Literal

from pydantic import Field

from rag_core.contract.nodes.memory_store import open_memory_store
from rag_core.contract.nodes.node_config import NodeConfig
from rag_core.contract.nodes.running import Inputs, Outputs, as_node, read_input
from rag_core.errors import UsageError
from rag_core.settings import load_settings


class SessionManagementConfig(NodeConfig):
    """`memory_store` is `postgres`, or names a store of this process.

    A session expires after `session_ttl` seconds without a turn.
    """

    node_type: Literal["session_management"] = "session_management"
    memory_store: str = Field(min_length=1)
    session_ttl: int = Field(3600, ge=1)


class SessionManagementNode:
    """Inputs: `session_id`, and an `action`, `open` or `close`. Outputs: `session`, `closed` and `active_sessions`.

    The default is `open`. Each run also closes the tenant's sessions that have expired. `closed` holds the ids of all
    that it closed, and `session` is empty after `close`.
    """

    def __init__(self, config: SessionManagementConfig) -> None:
        self.config = config

    @as_node(lambda _: {"session": {}, "closed": [], "active_sessions": 0})
    async def run(self, inputs: Inputs) -> Outputs:
        session_id, action = str(read_input(inputs, "session_id")), inputs.get("action", "open")
        if action not in ("open", "close"):
            raise UsageError(f"action must be open or close, got {action!r}")
        store = open_memory_store(load_settings(), self.config.memory_store)
        earliest = datetime.now(UTC) - timedelta(seconds=self.config.session_ttl)
        closed = [session.id for session in await store.list_sessions() if session.last_activity_at < earliest]
        if action == "close" and session_id not in closed:
            closed.append(session_id)
        for id in closed:
            await store.delete_session(id)
        session = {} if action == "close" else (await store.get_session(session_id)).model_dump()
        return {"session": session, "closed": closed, "active_sessions": len(await store.list_sessions())}
