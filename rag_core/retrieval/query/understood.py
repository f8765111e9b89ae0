"""A retriever that interprets a question in its conversation before it searches."""

from dataclasses import dataclass, replace

from rag_core.protocols import Retriever, Understander
from rag_core.stage import attempt
from rag_core.types import Hit, Query, Understanding

UNDERSTAND_STAGE = "understand"


@dataclass(frozen=True, slots=True)
class ConversationRetriever:
    """Searches the question of a query as its `history` makes it understood; a query without history as it is."""

    understander: Understander
    retriever: Retriever

    async def retrieve(self, query: Query, k: int) -> list[Hit]:
        return await self.retriever.retrieve(await self.rewrite(query), k)

    async def rewrite(self, query: Query) -> Query:
        """The query to search. If the understander fails, it is the question alone, and the stage has the error."""
        if not query.history:
            return query
        work = self.understander.understand(query, query.history)
        return rewrite_query(query, await attempt(UNDERSTAND_STAGE, work, Understanding(standalone=query.text)))


def rewrite_query(query: Query, understanding: Understanding) -> Query:
    """The query with the standalone question and its variants, and without history."""
    return replace(query, text=understanding.standalone, variants=understanding.variants, history=())
