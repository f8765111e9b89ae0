"""The composed graph: the objects of one profile, wherever their models run, and the store behind them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rag_core.config import Settings
from rag_core.conversation.in_memory import InMemoryConversations
from rag_core.protocols import Answerer, Conversations, Retriever
from rag_core.storage.corpus import CorpusReader
from rag_core.storage.postgres import Postgres
from rag_core.types import Hit, Query
from rag_core.wiring.budget import stage_limits
from rag_core.wiring.models import HERE, Elsewhere
from rag_core.wiring.pipeline import pipeline
from rag_core.wiring.retrieval import retriever
from serve.readiness import Dependency, store_dependency

LONGEST_QUERY = 1_000
"""Characters of what is searched with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """`limits` are those of a search's stages, in seconds, by name; `dependencies` also go by name."""

    settings: Settings
    postgres: Postgres
    corpus: CorpusReader
    retriever: Retriever
    answerer: Answerer
    limits: Mapping[str, float]
    dependencies: Mapping[str, Dependency]
    elsewhere: Elsewhere = HERE

    async def close(self) -> None:
        await self.corpus.close()


@dataclass(frozen=True, slots=True)
class ShortQueries:
    """A Retriever that searches with the beginning of a long message, up to the end of a word: all of it is read by who
    answers."""

    retriever: Retriever

    async def retrieve(self, query: Query, k: int) -> list[Hit]:
        return await self.retriever.retrieve(replace(query, text=_beginning(query.text)), k)


def _beginning(text: str) -> str:
    """The end of a word is also LONGEST_QUERY, where there is no other."""
    if len(text) <= LONGEST_QUERY:
        return text
    return text[: LONGEST_QUERY + 1].rsplit(maxsplit=1)[0][:LONGEST_QUERY]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What stays when settings change while they are served: graphs of one ground can follow each other, and each may
    still be asked when the next one is."""

    postgres: Postgres
    corpus: CorpusReader
    conversations: Conversations
    elsewhere: Elsewhere
    dependencies: Mapping[str, Dependency]

    def graph(self, settings: Settings) -> Graph:
        """Loads the models of this process that no graph before it has loaded. ModelError without one that it cannot
        do without."""
        found = retriever(settings, self.corpus, self.elsewhere)
        return Graph(
            settings=settings,
            postgres=self.postgres,
            corpus=self.corpus,
            retriever=found,
            answerer=pipeline(settings, self.corpus, ShortQueries(found), self.conversations, self.elsewhere),
            limits=stage_limits(settings.answering.budget, settings.retrieval),
            elsewhere=self.elsewhere,
            dependencies=self.dependencies,
        )


def ground(
    settings: Settings, elsewhere: Elsewhere = HERE, dependencies: Mapping[str, Dependency] | None = None
) -> Ground:
    """`dependencies` are those beside the store. StoreError if that cannot be reached."""
    postgres = Postgres.open(settings.store.url)
    return Ground(
        postgres=postgres,
        corpus=CorpusReader(postgres),
        conversations=InMemoryConversations(),
        elsewhere=elsewhere,
        dependencies={"store": store_dependency(postgres), **(dependencies or {})},
    )


def local_graph(settings: Settings) -> Graph:
    """With all models in this process: seconds."""
    return ground(settings).graph(settings)
