"""The Python door: a knowledge base in six lines, in a script or in a notebook."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

from anyio import to_thread
from anyio.from_thread import BlockingPortal, start_blocking_portal

from rag_core.answering.pipeline import QueryPipeline
from rag_core.config import Settings
from rag_core.conversation.in_memory import InMemoryConversations
from rag_core.errors import UsageError
from rag_core.events import Event, Listener, ignore_event
from rag_core.ingestion.report import Report
from rag_core.ingestion.sync import DEFAULT_OPTIONS, Options
from rag_core.protocols import Retriever
from rag_core.retrieval.tracing import trace
from rag_core.retrieval.why import Facts
from rag_core.settings import load_settings
from rag_core.stage import recording, stage
from rag_core.storage.corpus import CorpusReader
from rag_core.storage.filters import parsed_filter
from rag_core.storage.postgres import Postgres
from rag_core.types import DEFAULT_COLLECTION, Chunk, Hit, Query, Reply, StageReport
from rag_core.wiring.ingestion import inline_runner, sync
from rag_core.wiring.pipeline import pipeline
from rag_core.wiring.retrieval import retriever

LONGEST_QUESTION = 10_000
"""Characters."""


def open_knowledge_base(
    config: str | Path | None = None, profile: str | None = None, settings: Sequence[str] = ()
) -> "KnowledgeBase":
    """The embedded store and the default profile, unless `config` is a YAML file or a Postgres DSN.

    `settings` are single ones as on the command line, such as `embedding.type=hashing`.
    """
    text = str(config or "")
    if text and not text.endswith((".yaml", ".yml")):
        return KnowledgeBase(load_settings(None, profile, [f"store.url={text}", *settings]))
    return KnowledgeBase(load_settings(Path(text) if text else None, profile, settings))


class KnowledgeBase:
    """Synchronous, also where an event loop runs: what is asynchronous below runs in a thread of its own."""

    def __init__(self, settings: Settings) -> None:
        """StoreError if the store cannot be reached or started. The models are loaded when they are first used."""
        self._settings = settings
        self._postgres = Postgres.open(settings.store.url)
        self._open = ExitStack()

    def __enter__(self) -> "KnowledgeBase":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """The embedded server goes on; `rag store stop` ends it."""
        self._open.close()

    def ingest(
        self, *locations: str | Path, collection: str = DEFAULT_COLLECTION, options: Options = DEFAULT_OPTIONS
    ) -> Report:
        """Brings the collection in step with these sources, in this process; `jobs.ingest` does it on Ray."""
        sources = [str(location) for location in locations]
        return sync(self._settings, self._postgres, sources, collection, options).run(inline_runner(self._settings))

    def search(
        self,
        question: str,
        k: int = 10,
        collection: str = DEFAULT_COLLECTION,
        filters: Mapping[str, Any] | None = None,
    ) -> list[Hit]:
        """Best first. `filters` in the grammar of `rag_core.storage.filters`."""
        hits, _ = self.explain(question, k, collection, filters)
        return hits

    def explain(
        self,
        question: str,
        k: int = 10,
        collection: str = DEFAULT_COLLECTION,
        filters: Mapping[str, Any] | None = None,
    ) -> tuple[list[Hit], list[StageReport]]:
        """The hits of `search`, and how each stage on the way to them went."""
        return self._portal.call(_recorded, self._retriever, self._query(question, collection, filters), k)

    def ask(
        self,
        question: str,
        collection: str = DEFAULT_COLLECTION,
        filters: Mapping[str, Any] | None = None,
        session_id: str = "",
        tell: Callable[[Event], None] | None = None,
    ) -> Reply:
        """An answer from what is stored, each sentence with its sources, or that they do not answer.

        `tell` hears the events of the reply while it is made, in another thread. Messages of a `session_id` are
        remembered as long as this object lives. An interrupt ends the work below.
        """
        query = replace(self._query(question, collection, filters), session_id=session_id)
        asked = self._portal.start_task_soon(self._pipeline.answer, query, _listener(tell))
        try:
            return asked.result()
        finally:
            asked.cancel()

    def search_around(
        self,
        question: str,
        k: int = 10,
        collection: str = DEFAULT_COLLECTION,
        filters: Mapping[str, Any] | None = None,
        around: int = 1,
    ) -> tuple[list[Hit], list[list[Chunk]], list[StageReport]]:
        """As `explain`, and for each hit up to `around` chunks before and after it, in text order."""
        query = self._query(question, collection, filters)
        return self._portal.call(_recorded_around, self._corpus, self._retriever, query, k, around)

    def why(
        self,
        question: str,
        uri: str,
        k: int = 10,
        collection: str = DEFAULT_COLLECTION,
        filters: Mapping[str, Any] | None = None,
        groups: Sequence[str] = (),
        span: str = "",
    ) -> Facts:
        """How the document fares on its way to the hits of `explain`; `rag_core.retrieval.why.verdict` judges it.

        `span` are words of it that should be found. A document that is not for `groups` is as one never stored.
        """
        query = replace(self._query(question, collection, filters), groups=tuple(groups))
        return self._portal.call(trace, self._corpus, self._retriever, query, k, uri, span)

    def load(self, answering: bool = False) -> None:
        """Loads the models that a search needs, or an answer, now, and not at the first one."""
        _ = self._pipeline if answering else self._retriever

    def _query(self, question: str, collection: str, filters: Mapping[str, Any] | None) -> Query:
        return Query(
            text=_asked(question),
            tenant=self._settings.tenant,
            collection=collection,
            filters=parsed_filter(filters) if filters is not None else None,
        )

    @cached_property
    def _portal(self) -> BlockingPortal:
        return self._open.enter_context(start_blocking_portal())

    @cached_property
    def _corpus(self) -> CorpusReader:
        corpus = CorpusReader(self._postgres)
        portal = self._portal
        self._open.callback(lambda: portal.call(corpus.close))
        return corpus

    @cached_property
    def _retriever(self) -> Retriever:
        return retriever(self._settings, self._corpus)

    @cached_property
    def _pipeline(self) -> QueryPipeline:
        return pipeline(self._settings, self._corpus, self._retriever, InMemoryConversations())


def _asked(question: str) -> str:
    """Without halves of characters, which a command line in another encoding gives."""
    if not question.strip():
        raise UsageError(f"a question has words, got {question!r}")
    if len(question) > LONGEST_QUESTION:
        raise UsageError(f"a question has at most {LONGEST_QUESTION} characters, got {len(question)}")
    return question.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _listener(tell: Callable[[Event], None] | None) -> Listener:
    if tell is None:
        return ignore_event

    async def told(event: Event) -> None:
        await to_thread.run_sync(tell, event, abandon_on_cancel=True)  # it may wait, for a pager say

    return told


async def _recorded(retriever: Retriever, query: Query, k: int) -> tuple[list[Hit], list[StageReport]]:
    with recording() as stages:
        hits = await retriever.retrieve(query, k)
    return hits, stages


async def _recorded_around(
    corpus: CorpusReader, retriever: Retriever, query: Query, k: int, around: int
) -> tuple[list[Hit], list[list[Chunk]], list[StageReport]]:
    with recording() as stages:
        async with corpus.reading(query):  # around the whole search: hits and neighbours are of one version
            hits = await retriever.retrieve(query, k)
            async with stage("neighbours"):
                neighbours = await corpus.neighbours(query, hits, around, around)
    return hits, neighbours, stages
