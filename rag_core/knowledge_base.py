"""The Python API: a knowledge base for scripts and notebooks."""

import os
from asyncio import CancelledError
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache, cached_property, partial
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any
from uuid import UUID
from weakref import finalize

from anyio import CancelScope, to_thread
from anyio.from_thread import BlockingPortal, start_blocking_portal

from rag_core.answering.pipeline import QueryPipeline
from rag_core.chunking.given import sort_given
from rag_core.config import Settings
from rag_core.conversation.postgres import PostgresConversations
from rag_core.errors import DocumentError, NotFoundError, UsageError, suggest_name
from rag_core.events import Event
from rag_core.ingestion.report import SyncReport
from rag_core.ingestion.sources.given import GivenSource
from rag_core.ingestion.sync import DEFAULT_OPTIONS, SyncOptions
from rag_core.protocols import Retriever
from rag_core.retrieval.query.understood import ConversationRetriever
from rag_core.retrieval.tracing import trace
from rag_core.retrieval.variants import with_variants
from rag_core.retrieval.why import Facts
from rag_core.settings import load_settings, read_detection
from rag_core.stage import recording, skip_stages, stage
from rag_core.storage.catalog import Catalog
from rag_core.storage.conversations import StoredConversations
from rag_core.storage.corpus import CorpusReader
from rag_core.storage.filters import CHUNK_KEYS, list_keys, parse_filter
from rag_core.storage.postgres import Postgres, snapshot_transaction
from rag_core.types import (
    DEFAULT_COLLECTION,
    UNSTORABLE,
    Answer,
    Chunk,
    Document,
    GivenChunk,
    Hit,
    Matrix,
    Message,
    Passage,
    Query,
    Reply,
    StageReport,
    Variant,
    Verdict,
    document_id,
)
from rag_core.wiring.encryption import build_cipher
from rag_core.wiring.ingestion import build_given_source, build_given_sync, build_inline_runner, build_sync
from rag_core.wiring.judging import build_configured_judge
from rag_core.wiring.models import RemoteModels
from rag_core.wiring.pipeline import build_pipeline
from rag_core.wiring.profile_choice import add_document_profiles
from rag_core.wiring.retrieval import build_retriever
from rag_core.wiring.understanding import build_conversation_retriever

MAX_QUESTION_CHARS = 10_000
MAX_CHUNKS = 2**31 - 1
"""All chunks of a document: ordinals are integers of 32 bits."""


def open_knowledge_base(
    config: str | Path | None = None, profile: str | None = None, settings: Sequence[str] = ()
) -> "KnowledgeBase":
    """Opens the embedded store, or the store of `config`, which is a YAML file or a Postgres DSN.

    `settings` are overrides as on the command line, such as `embedding.type=hashing`. Without a profile, `ingest`
    detects one for single documents. Raises ConfigError or StoreError.
    """
    text = str(config or "")
    is_file = text.endswith((".yaml", ".yml"))
    file = Path(text) if is_file else None
    overrides = [*([f"store.url={text}"] if text and not is_file else []), *settings]
    loaded = load_settings(file, profile, overrides)
    if profile or "RAG_PROFILE" in os.environ:
        return KnowledgeBase(loaded)
    load = cache(partial(load_settings, file, overrides=overrides))
    return KnowledgeBase(add_document_profiles(loaded, read_detection(file), load))


class KnowledgeBase:
    """A synchronous API. It works inside a running event loop too: asynchronous code runs in a separate thread.

    Time limits of a search that are not set do not apply: they are defaults for servers.
    """

    def __init__(self, settings: Settings, remote: RemoteModels | None = None) -> None:
        """Raises StoreError if the store cannot be reached or started. Models are loaded when they are first used.

        The models of `remote` answer questions instead of those of the settings. Its connections are closed with this
        object.
        """
        self._settings, self._remote = settings, remote or RemoteModels()
        self._postgres = Postgres.open(settings.store.url)
        self._resources = ExitStack()
        self._close_forgotten = finalize(self, _close_in_background, self._resources)

    def __enter__(self) -> "KnowledgeBase":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes connections. The embedded server continues to run until `rag store stop`."""
        self._close_forgotten.detach()
        self._resources.close()

    def ingest(
        self, *locations: str | Path, collection: str = DEFAULT_COLLECTION, options: SyncOptions = DEFAULT_OPTIONS
    ) -> SyncReport:
        """Synchronizes the collection with these sources in this process; `jobs.ingest` does so on Ray."""
        sources = [str(location) for location in locations]
        return build_sync(self._settings, self._postgres, sources, collection, options).run(
            build_inline_runner(self._settings)
        )

    def add(self, documents: Iterable[Document], collection: str = DEFAULT_COLLECTION) -> SyncReport:
        """Adds documents to the collection, and replaces those with the same uris.

        A document with `given` chunks is stored with these; their vectors, if they have any, are not computed. A
        document without chunks is split as by the settings; its text is not parsed. The uri is any unique text. A
        document that cannot be stored is one of the report's failures. Raises UsageError if its `access` is not a list
        of names.
        """
        source = build_given_source(self._settings, map(_check_access, documents))
        sync = build_given_sync(self._settings, self._postgres, source, collection, is_partial=True)
        return sync.run(build_inline_runner(self._settings))

    def store(
        self,
        document: Document,
        chunks: Sequence[Chunk],
        vectors: Matrix,
        collection: str = DEFAULT_COLLECTION,
        size: int = 0,
    ) -> UUID:
        """Stores a document that was split and embedded elsewhere, as its own source, and returns its id.

        It replaces the document with its uri. `vectors` has one row per chunk, of the embedding model of the settings.
        The chunks receive new ids and ordinals. `size` is that of the document's file in bytes. Raises DocumentError if
        the document cannot be stored.
        """
        given = tuple(
            GivenChunk(
                start=chunk.start, end=chunk.end, prefix=chunk.prefix, metadata=chunk.metadata, vector=tuple(vector)
            )
            for chunk, vector in zip(chunks, vectors.tolist(), strict=True)
        )
        documents = {document.uri: sort_given(replace(_check_access(document), given=given))}
        source = GivenSource(document.uri, documents, {document.uri: size})
        sync = build_given_sync(self._settings, self._postgres, source, collection, is_partial=False)
        report = sync.run(build_inline_runner(self._settings))
        for failure in report.failures:
            raise DocumentError(failure["stage"], failure["reason"])
        return document_id(self._settings.tenant, collection, document.uri)

    def search(
        self,
        question: str,
        k: int = 10,
        collection: str = DEFAULT_COLLECTION,
        filters: Mapping[str, Any] | None = None,
        groups: Sequence[str] = (),
    ) -> list[Hit]:
        """Returns at most `k` hits, best first. `rag_core.storage.filters` defines the grammar of `filters`.

        Without `groups`, only documents that everyone can read are searched.
        """
        hits, _ = self.explain(question, k, collection, filters, groups=groups)
        return hits

    def explain(
        self,
        question: str,
        k: int = 10,
        collection: str = DEFAULT_COLLECTION,
        filters: Mapping[str, Any] | None = None,
        history: Sequence[Message] = (),
        variants: Sequence[Variant] = (),
        groups: Sequence[str] = (),
    ) -> tuple[list[Hit], list[StageReport]]:
        """Returns the hits of `search` and a report of each stage.

        `history` holds earlier messages, oldest first. `variants` are searched instead of the question if there is no
        history.
        """
        query, skipped = self._query(question, collection, filters, groups), self._settings.skipped.questions
        query = replace(query, history=tuple(history), variants=tuple(variants))
        retriever = self._conversation_retriever if query.history or query.variants else self._retriever
        return self._portal.call(_retrieve_with_stages, retriever, query, k, skipped)

    def rewrite(self, question: str, history: Sequence[Message], collection: str = DEFAULT_COLLECTION) -> str:
        """The question in words that need no history; the question itself if it could not be interpreted."""
        query = replace(self._query(question, collection, None), history=tuple(history))
        return self._portal.call(self._conversation_retriever.rewrite, query).text

    def ask(
        self,
        question: str,
        collection: str = DEFAULT_COLLECTION,
        filters: Mapping[str, Any] | None = None,
        session_id: str = "",
        on_event: Callable[[Event], None] | None = None,
        history: Sequence[Message] = (),
        user_id: str = "",
        answer_id: str = "",
        groups: Sequence[str] = (),
    ) -> Reply:
        """Answers from the stored documents with citations, or reports that they do not answer.

        `on_event` is called with each event of the reply, in another thread. The messages of a session are stored;
        `history` holds earlier messages, oldest first, if there is no session. `user_id` names the participant. A
        session stores an answer with the same `answer_id` once. An interrupt cancels the work. Raises UsageError for
        ids that the store cannot hold.
        """
        for name, id in (("session_id", session_id), ("user_id", user_id), ("answer_id", answer_id)):
            if UNSTORABLE.search(id):
                raise UsageError(f"{name} must not contain NUL or lone surrogates, got {id!r:.80}")
        query = self._query(question, collection, filters, groups)
        query = replace(query, session_id=session_id, user_id=user_id, answer_id=answer_id, history=tuple(history))

        async def emit(event: Event) -> None:
            if on_event is not None:
                # in a thread, because the callback can block, for example in a pager
                await to_thread.run_sync(on_event, event, abandon_on_cancel=True)

        async def answer() -> Reply:
            with scope:
                return await self._pipeline.answer(query, emit)
            raise CancelledError

        # The scope exists before the task: an interrupt can come while the task is being started.
        scope = self._portal.call(CancelScope)
        try:
            return self._portal.call(answer)
        finally:
            self._portal.start_task_soon(scope.cancel)

    def search_around(
        self,
        question: str,
        k: int = 10,
        collection: str = DEFAULT_COLLECTION,
        filters: Mapping[str, Any] | None = None,
        around: int = 1,
        groups: Sequence[str] = (),
    ) -> tuple[list[Hit], list[list[Chunk]], list[StageReport]]:
        """Returns the hits of `explain`, the neighbours of each hit, and the reports of the stages.

        The neighbours are up to `around` chunks before and up to `around` chunks after the hit, in text order.
        """
        query = self._query(question, collection, filters, groups)
        skipped = self._settings.skipped.questions
        return self._portal.call(_retrieve_with_neighbours, self._corpus, self._retriever, query, k, around, skipped)

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
        """Traces the document through the stages of `explain`; `rag_core.retrieval.why.verdict` interprets the result.

        `span` holds words of the document that should be found. A document that `groups` cannot read appears as never
        stored.
        """
        query = self._query(question, collection, filters, groups)
        return self._portal.call(trace, self._corpus, self._retriever, query, k, uri, span)

    def read(
        self, uri: str, collection: str = DEFAULT_COLLECTION, groups: Sequence[str] = ()
    ) -> tuple[str, list[Chunk]]:
        """Returns the stored text of a document, and its chunks in text order, both of one version.

        `uri` is as `rag documents list` prints it; that of a document of `add` begins with `push:///`. Raises
        NotFoundError if the collection has no text of this document that `groups` can read.
        """
        id, readers = document_id(self._settings.tenant, collection, uri), _check_groups("groups", groups)
        with self._postgres.connect() as connection, snapshot_transaction(connection, self._settings.tenant):
            catalog = Catalog(connection, self._settings.tenant)
            stored = catalog.collection(collection)
            rows = catalog.chunk_page(stored.id, id, readers, after=-1, limit=MAX_CHUNKS)
            if not rows:
                raise NotFoundError(
                    f"collection {collection!r} has no text of {uri}, or only members of other groups can read it; "
                    "`rag documents list` shows its documents"
                )
            text = catalog.content(stored.id, id, readers)
        return text, [Chunk(document_id=id, **row) for row in rows]

    def judge(self, text: str, passages: Sequence[Passage]) -> Verdict:
        """Grades each sentence of the text by the passages, with the judge of `guard.judge`, whoever wrote the text.

        Raises JudgeError or ModelError if the judge fails.
        """
        judge = build_configured_judge(self._settings, self._remote)
        return self._portal.call(judge.judge, Answer(text=text), passages)

    def describe_unknown_keys(
        self, filters: Mapping[str, Any] | None, collection: str = DEFAULT_COLLECTION
    ) -> list[str]:
        """One sentence for each key of the filters that no document of the collection has.

        Raises FilterError if the filters break their grammar, and NotFoundError if there is no such collection.
        """
        if filters is None:
            return []
        keys = list_keys(parse_filter(filters)) - CHUNK_KEYS.keys()
        with self._postgres.connect() as connection:
            known = Catalog(connection, self._settings.tenant).metadata_keys(collection)
        return [
            f"no document of {collection!r} has the metadata key {key!r}{suggest_name(key, known)}"
            for key in sorted(keys - set(known))
        ]

    def load(self, answering: bool = False) -> None:
        """Loads the models for searching, or for answering, before the first question."""
        _ = self._pipeline if answering else self._retriever

    def _query(
        self, question: str, collection: str, filters: Mapping[str, Any] | None, groups: Sequence[str] = ()
    ) -> Query:
        return Query(
            text=_clean_question(question),
            tenant=self._settings.tenant,
            collection=collection,
            filters=parse_filter(filters) if filters is not None else None,
            groups=_check_groups("groups", groups),
        )

    @cached_property
    def _portal(self) -> BlockingPortal:
        portal = self._resources.enter_context(start_blocking_portal())
        self._resources.callback(portal.call, self._remote.aclose)
        return portal

    @cached_property
    def _corpus(self) -> CorpusReader:
        corpus = CorpusReader(self._postgres)
        self._resources.callback(self._portal.call, corpus.close)
        return corpus

    @cached_property
    def _conversation_store(self) -> StoredConversations:
        cipher = build_cipher(self._settings.encryption)
        conversations = StoredConversations(self._postgres, cipher=cipher)
        self._resources.callback(self._portal.call, conversations.close)
        return conversations

    @cached_property
    def _retriever(self) -> Retriever:
        return build_retriever(self._settings, self._corpus, self._remote, patient=True)

    @cached_property
    def _conversation_retriever(self) -> ConversationRetriever:
        return build_conversation_retriever(self._settings, self._corpus, self._retriever, self._remote)

    @cached_property
    def _pipeline(self) -> QueryPipeline:
        return build_pipeline(
            self._settings,
            self._corpus,
            with_variants(self._retriever, self._corpus),
            PostgresConversations(self._conversation_store),
            self._remote,
            patient=True,
        )


def _close_in_background(resources: ExitStack) -> None:
    """Closes the resources of an object that was dropped without `close`.

    The garbage collector can run in the event loop's own thread, which must not wait for itself. Without this, it would
    end the loop before the pool is closed, and wait forever: a pool's worker that connects ignores a cancellation.
    """
    Thread(target=resources.close, name="close-knowledge-base").start()


def _clean_question(question: str) -> str:
    """Replaces unpaired surrogates, which a command line in another encoding produces. Raises UsageError if empty."""
    if not question.strip():
        raise UsageError(f"question must not be empty, got {question!r}")
    if len(question) > MAX_QUESTION_CHARS:
        raise UsageError(f"question must have at most {MAX_QUESTION_CHARS} characters, got {len(question)}")
    return question.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _check_access(document: Document) -> Document:
    if document.access is not None:
        _check_groups("access", document.access)
    return document


def _check_groups(name: str, groups: Sequence[str]) -> tuple[str, ...]:
    """Raises UsageError for a text, whose characters would be the groups, and for groups that no row can hold."""
    if isinstance(groups, str) or any(UNSTORABLE.search(group) for group in groups):
        raise UsageError(f"{name} must be a list of names without NUL and lone surrogates, got {groups!r:.80}")
    return tuple(groups)


async def _retrieve_with_stages(
    retriever: Retriever, query: Query, k: int, skipped: Mapping[str, str]
) -> tuple[list[Hit], list[StageReport]]:
    with recording() as stages:
        hits = await retriever.retrieve(query, k)
        skip_stages(skipped)
    return hits, stages


async def _retrieve_with_neighbours(
    corpus: CorpusReader, retriever: Retriever, query: Query, k: int, around: int, skipped: Mapping[str, str]
) -> tuple[list[Hit], list[list[Chunk]], list[StageReport]]:
    with recording() as stages:
        async with corpus.reading(query):  # one snapshot: hits and neighbours are of one version
            hits = await retriever.retrieve(query, k)
            async with stage("neighbours"):
                neighbours = await corpus.fetch_neighbours(query, hits, around, around)
        skip_stages(skipped)
    return hits, neighbours, stages
