"""Pools of asynchronous connections that survive a restart of the server."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from rag_core.secret_references import is_reference
from rag_core.storage.postgres import ASSUME_ROLE, OPTIONS, Postgres

CONNECTION_WAIT, RECONNECTION = 10.0, 8.0
"""Seconds that a caller waits for a connection, and that the pool tries to replace a lost one. The pool's attempts get
ever less frequent, so they end, and the next caller starts them again. A caller waits longer than that, so a client
that retries after a timeout finds no attempts still running."""


def build_pool(
    postgres: Postgres,
    options: str,
    configure: Callable[[AsyncConnection], Awaitable[None]],
    min_size: int,
    max_size: int,
) -> AsyncConnectionPool:
    """A pool that is not open yet. `options` are added to those of all connections; statements commit at once."""
    return AsyncConnectionPool(
        partial(_read_dsn, postgres),
        kwargs={"options": OPTIONS + options, "autocommit": True},
        configure=configure,
        check=_check_open,
        min_size=min_size,
        max_size=max_size,
        timeout=CONNECTION_WAIT,
        reconnect_timeout=RECONNECTION,
        open=False,
    )


async def _read_dsn(postgres: Postgres) -> str:
    """Reads a reference in a thread, because it can be a file or a vault."""
    if is_reference(postgres.dsn):
        return await asyncio.to_thread(postgres.read_dsn)
    return postgres.read_dsn()


async def assume_app_role(connection: AsyncConnection) -> None:
    """Assumes the role of requests and writers, which row-level security limits to one tenant."""
    await connection.execute(ASSUME_ROLE, {"role": "rag_app"})


async def _check_open(connection: AsyncConnection) -> None:
    """Raises OperationalError if the server closed the connection, as a restart does. Costs no round trip."""
    for _ in range(2):  # the first reads the server's last message, the second its end of file
        connection.pgconn.consume_input()
