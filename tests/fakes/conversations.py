"""Stored conversations."""

import asyncio

from rag_core.conversation.postgres import PostgresConversations
from rag_core.encryption import PLAIN_TEXT, TextCipher
from rag_core.storage.conversations import StoredConversations
from rag_core.storage.postgres import Postgres
from rag_core.types import Answer, Query, Turn, Understanding


def converse(store: Postgres, *queries: Query, cipher: TextCipher = PLAIN_TEXT) -> None:
    """Stores a turn for each query; the answer is its text in capitals."""

    async def remember() -> None:
        stored = StoredConversations(store, cipher=cipher)
        for query in queries:
            understanding, answer = Understanding(standalone=query.text), Answer(text=query.text.upper())
            turn = Turn(query=query, understanding=understanding, answer=answer)
            await PostgresConversations(stored).remember(turn)
        await stored.close()

    asyncio.run(remember())
