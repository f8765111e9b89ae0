"""A gateway with scripted parts, and a server for it."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace

import uvicorn
from fakes.answering import ScriptedGenerator, ScriptedJudge, ScriptedRetriever, passage, passages_from_hits

from rag_core.answering.judging.guard import Guard
from rag_core.answering.pipeline import AnswerLimits, QueryPipeline
from rag_core.conversation.in_memory import InMemoryConversations
from rag_core.conversation.postgres import PostgresConversations
from rag_core.protocols import Retriever
from rag_core.retrieval.query.rules import RuleUnderstander
from rag_core.settings import load_settings
from rag_core.storage.conversations import StoredConversations
from rag_core.storage.corpus import CorpusReader
from rag_core.storage.postgres import Postgres
from rag_core.storage.rate_limits import RateLimiter
from rag_core.types import Hit, Query, Style
from serve.audit import AuditLog
from serve.authentication.caller import Authenticator, OpenAuthenticator
from serve.gateway import build_fastapi
from serve.profiles import ServedProfiles
from serve.readiness import Dependency
from serve.replies import ReplyLog
from serve.services import Services

NOWHERE = Postgres("host=/nowhere")


@dataclass(kw_only=True)
class RecordingRetriever:
    """A retriever that keeps its queries."""

    hits: Sequence[Hit]
    queries: list[Query] = field(default_factory=list)

    async def retrieve(self, query: Query, k: int) -> list[Hit]:
        self.queries.append(query)
        return list(self.hits[:k])


def scripted_graph(
    retriever: Retriever | None = None,
    generator: ScriptedGenerator | None = None,
    guard: tuple[str, str] = ("flag", "after"),
    judge: ScriptedJudge | None = None,
    postgres: Postgres = NOWHERE,
    authenticator: Authenticator | None = None,
    audit: AuditLog | None = None,
) -> Services:
    """A graph of scripted parts. `guard` is the mode and the stream setting of the guard."""
    settings = load_settings(environment={}, overrides=[f"telemetry.replies={str(postgres is not NOWHERE).lower()}"])
    guard_settings = settings.guard.model_copy(update={"mode": guard[0], "stream": guard[1]})
    retriever = retriever or ScriptedRetriever(hits=[])
    scripted_guard = Guard(
        judge=judge or ScriptedJudge(),
        mode=guard_settings.mode,
        stream=guard_settings.stream,
        on_judge_error="allow_flagged",
        timeout=5.0,
    )
    understander, conversations = RuleUnderstander(), InMemoryConversations()
    answerer = QueryPipeline(
        retriever=retriever,
        pack=passages_from_hits,
        generator=generator or ScriptedGenerator(answers=[]),
        guard=scripted_guard,
        understander=understander,
        conversations=conversations,
        style=Style(),
        limits=AnswerLimits(timeout=30.0),
    )
    return Services(
        settings=settings.model_copy(update={"guard": guard_settings}),
        postgres=postgres,
        corpus=CorpusReader(postgres),
        retriever=retriever,
        answerer=answerer,
        understander=understander,
        conversations=conversations,
        conversation_store=StoredConversations(postgres),
        limits={},
        dependencies={"store": Dependency(_check_store, required=True)},
        replies=ReplyLog(postgres),
        audit=audit or AuditLog(postgres, settings.audit.reads),
        authenticator=authenticator or OpenAuthenticator(settings.tenant),
        rate_limiter=RateLimiter(postgres),
    )


async def _check_store() -> None:
    """Reports the store as ready, because scripted parts do not use it."""


def storing_graph(
    postgres: Postgres, retriever: Retriever | None = None, authenticator: Authenticator | None = None
) -> Services:
    """A graph of scripted parts that keeps its conversations in the store. Its answers are all the same."""
    generator = ScriptedGenerator(answers=[["Every 45 days [1]."]] * 1_000)
    retriever = retriever or RecordingRetriever(hits=[passage(1, "Keys are replaced every 45 days.", title="Keys").hit])
    built = scripted_graph(retriever, generator, postgres=postgres, authenticator=authenticator)
    conversations = PostgresConversations(built.conversation_store)
    assert isinstance(built.answerer, QueryPipeline)
    return replace(built, conversations=conversations, answerer=replace(built.answerer, conversations=conversations))


def serve_graph(graph: Services) -> AbstractContextManager[str]:
    """Runs a server with one profile."""
    return serve_profiles(ServedProfiles(graph))


@contextmanager
def serve_profiles(profiles: ServedProfiles) -> Iterator[str]:
    """Runs a server on loopback in a separate thread, and yields its address."""
    server = uvicorn.Server(uvicorn.Config(build_fastapi(profiles), port=0, log_level="warning", ws="none"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started and thread.is_alive():
            time.sleep(0.005)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
