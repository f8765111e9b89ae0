"""The objects that answer the requests of one profile: retriever, answerer, store and remote models."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from threading import Lock

from anyio import to_thread

from rag_core.breaker import MAX_PAUSE, Breaker
from rag_core.config import Settings
from rag_core.conversation.postgres import PostgresConversations
from rag_core.encryption import PLAIN_TEXT, TextCipher
from rag_core.protocols import Answerer, Conversations, Retriever, Understander
from rag_core.retrieval.variants import with_variants
from rag_core.storage.conversations import StoredConversations
from rag_core.storage.corpus import CorpusReader
from rag_core.storage.keys import KeyFinder
from rag_core.storage.postgres import Postgres
from rag_core.storage.rate_limits import RateLimiter
from rag_core.types import Hit, Query
from rag_core.wiring.budget import stage_limits
from rag_core.wiring.encryption import build_cipher
from rag_core.wiring.models import RemoteModels, called_models, share_models, shared_roles
from rag_core.wiring.pipeline import build_pipeline
from rag_core.wiring.retrieval import build_retriever
from serve.audit import AuditLog
from serve.authentication.caller import Authenticator, OpenAuthenticator
from serve.authentication.jwt import JwtAuthenticator
from serve.authentication.keys import KeyAuthenticator
from serve.authentication.mixed import MixedAuthenticator
from serve.authentication.signing_keys import SigningKeys
from serve.readiness import Dependency, model_dependency, store_dependency
from serve.replies import ReplyLog
from serve.telemetry import record_breaker_state

MAX_QUERY_CHARS = 1_000
"""The longest text that is searched, in characters."""

CLOSE_SECONDS = 5.0
"""The longest time that services wait for replies, and for rows of the audit, to be stored when they close."""

STORE_PAUSE = 5.0
"""The longest pause of the store's circuit breaker, in seconds: nothing works without the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The objects that requests use, built from `settings`. The retriever searches the variants of a query.

    `limits` holds the timeouts of a search's stages, in seconds, by name. `dependencies` are those that `/readyz`
    checks, by name.
    """

    settings: Settings
    postgres: Postgres
    corpus: CorpusReader
    retriever: Retriever
    answerer: Answerer
    understander: Understander
    conversations: Conversations
    conversation_store: StoredConversations
    limits: Mapping[str, float]
    dependencies: Mapping[str, Dependency]
    replies: ReplyLog
    audit: AuditLog
    authenticator: Authenticator
    rate_limiter: RateLimiter
    remote_models: RemoteModels = field(default_factory=RemoteModels)
    cipher: TextCipher = PLAIN_TEXT

    async def close(self) -> None:
        await to_thread.run_sync(self.replies.wait, CLOSE_SECONDS)
        await to_thread.run_sync(self.audit.close, CLOSE_SECONDS)
        await self.remote_models.aclose()
        await self.corpus.close()
        await self.conversation_store.close()
        await self.authenticator.close()
        await self.rate_limiter.close()


@dataclass(frozen=True, slots=True)
class ShortQueryRetriever:
    """A Retriever that searches only the beginning of a long message. The generator still reads the whole message.

    The beginning has at most `MAX_QUERY_CHARS` characters, and ends with a complete word if possible.
    """

    retriever: Retriever

    async def retrieve(self, query: Query, k: int) -> list[Hit]:
        variants = tuple(replace(variant, text=_shorten(variant.text)) for variant in query.variants)
        return await self.retriever.retrieve(replace(query, text=_shorten(query.text), variants=variants), k)


def _shorten(text: str) -> str:
    if len(text) <= MAX_QUERY_CHARS:
        return text
    return text[: MAX_QUERY_CHARS + 1].rsplit(maxsplit=1)[0][:MAX_QUERY_CHARS]


@dataclass(frozen=True, kw_only=True)
class SharedResources:
    """The objects that stay the same when settings are reloaded, and that all profiles of a gateway share.

    `settings` are those of the gateway's own profile, to which the remote models belong. `loading` is held while a
    profile is built: two that are built at the same time would each load the models that they share.
    """

    settings: Settings
    postgres: Postgres
    corpus: CorpusReader
    conversation_store: StoredConversations
    authenticator: Authenticator
    rate_limiter: RateLimiter
    remote_models: RemoteModels
    dependencies: Mapping[str, Dependency]
    cipher: TextCipher = PLAIN_TEXT
    loading: Lock = field(default_factory=Lock, repr=False)

    @cached_property
    def replies(self) -> ReplyLog:
        return ReplyLog(self.postgres, self.cipher)

    @cached_property
    def audit(self) -> AuditLog:
        return AuditLog(self.postgres, self.settings.audit.reads)

    def build_services(self, settings: Settings) -> Services:
        """Builds the services for `settings`. Loads only the local models that are not yet in memory.

        Another profile than the gateway's own uses the remote models that it has in common with it, and loads the rest.
        Raises ModelError if a required model cannot be loaded.
        """
        remote_models, conversations = self._select_models(settings), PostgresConversations(self.conversation_store)
        with self.loading:
            retriever = with_variants(build_retriever(settings, self.corpus, remote_models), self.corpus)
            short = ShortQueryRetriever(retriever)
            answerer = build_pipeline(settings, self.corpus, short, conversations, remote_models)
        return Services(
            settings=settings,
            postgres=self.postgres,
            corpus=self.corpus,
            retriever=retriever,
            answerer=answerer,
            understander=answerer.understander,
            conversations=conversations,
            conversation_store=self.conversation_store,
            limits=stage_limits(settings.answering.budget, settings.retrieval),
            remote_models=remote_models,
            dependencies=self.dependencies,
            replies=self.replies,
            audit=self.audit,
            authenticator=self.authenticator,
            cipher=self.cipher,
            rate_limiter=self.rate_limiter,
        )

    def _select_models(self, settings: Settings) -> RemoteModels:
        """The remote models for a profile. Its own models have circuit breakers of their own."""
        if settings.profile == self.settings.profile:
            return self.remote_models
        shared = share_models(self.remote_models, self.settings, settings)
        protected = shared_roles(self.settings, settings) & {*called_models(self.settings, self.remote_models)}
        roles = set(called_models(settings, shared)) - protected
        breakers = {role: build_role_breaker(role, settings.profile) for role in roles}

        def protect(role: str) -> Callable[[], AbstractContextManager[None]]:
            return breakers[role].protect if role in breakers else self.remote_models.protect(role)

        return replace(shared, protect=protect)


def open_shared_resources(
    settings: Settings,
    remote_models: RemoteModels | None = None,
    dependencies: Mapping[str, Dependency] | None = None,
) -> SharedResources:
    """Connects to the store. `dependencies` are added to those that have circuit breakers here: the store, the
    endpoints of language models, and an embedder in this process.

    Raises StoreError if the store cannot be reached, and ConfigError if a key of the encryption cannot be read.
    """
    cipher = build_cipher(settings.encryption)
    postgres, remote = Postgres.open(settings.store.url), remote_models or RemoteModels()
    store = build_breaker("store", "the store", STORE_PAUSE)
    models = {role: build_role_breaker(role) for role in called_models(settings, remote)}
    return SharedResources(
        settings=settings,
        postgres=postgres,
        corpus=CorpusReader(postgres, protect=store.protect),
        conversation_store=StoredConversations(postgres, protect=store.protect, cipher=cipher),
        cipher=cipher,
        authenticator=_build_authenticator(settings, postgres, store),
        rate_limiter=RateLimiter(postgres, protect=store.protect),
        remote_models=replace(remote, protect=lambda role: models[role].protect if role in models else nullcontext),
        dependencies={
            "store": store_dependency(postgres, store),
            **{role: model_dependency(breaker) for role, breaker in models.items()},
            **(dependencies or {}),
        },
    )


def _build_authenticator(settings: Settings, postgres: Postgres, store: Breaker) -> Authenticator:
    auth = settings.auth
    tokens = JwtAuthenticator(auth.provider, SigningKeys(auth.provider)) if auth.provider else None
    keys = KeyAuthenticator(KeyFinder(postgres, protect=store.protect))
    match auth.mode, tokens:
        case "none", _:
            return OpenAuthenticator(settings.tenant)
        case "both", JwtAuthenticator():
            return MixedAuthenticator(keys, tokens)
        case "jwt", JwtAuthenticator():
            return tokens
        case _:
            return keys


def build_role_breaker(role: str, profile: str = "") -> Breaker:
    """The breaker of a model that is not deployed. `profile` names the profile that alone uses it, if any."""
    return build_breaker(f"{role}:{profile}" if profile else role, f"the model of the {role}")


def build_breaker(service: str, name: str, max_pause: float = MAX_PAUSE) -> Breaker:
    """A circuit breaker whose state is in the metrics from the start. Messages call the service `name`."""
    record_breaker_state(service, "closed")
    return Breaker(name, max_pause=max_pause, on_change=partial(record_breaker_state, service))
