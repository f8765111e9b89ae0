"""The composed graph: the objects of one profile, wherever their models run, and the store behind them."""

from collections.abc import Mapping
from dataclasses import dataclass

from rag_core.build.budget import stage_limits
from rag_core.build.pipeline import pipeline
from rag_core.build.retrieval import retriever
from rag_core.config import Settings
from rag_core.conversation.in_memory import InMemoryConversations
from rag_core.protocols import Answerer, Retriever
from rag_core.storage.corpus import CorpusReader
from rag_core.storage.postgres import Postgres


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """`limits` are those of a search's stages, in seconds, by name."""

    settings: Settings
    postgres: Postgres
    corpus: CorpusReader
    retriever: Retriever
    answerer: Answerer
    limits: Mapping[str, float]

    async def close(self) -> None:
        await self.corpus.close()


def local_graph(settings: Settings) -> Graph:
    """With all models in this process: seconds. StoreError if the store cannot be reached, ModelError without a model
    that it cannot do without."""
    postgres = Postgres.open(settings.store.url)
    corpus = CorpusReader(postgres)
    found = retriever(settings, corpus)
    return Graph(
        settings=settings,
        postgres=postgres,
        corpus=corpus,
        retriever=found,
        answerer=pipeline(settings, corpus, found, InMemoryConversations()),
        limits=stage_limits(settings.answering.budget, settings.retrieval),
    )
