"""Two tenants behind one gateway, and a word for each tenant and user that no other may read."""

import json
import os
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

from drafts import SPACE, draft, draft_with_failure, vector
from fakes.conversations import converse
from fakes.serving import storing_graph
from fastapi.testclient import TestClient
from run_folders import write_run_folder
from targets import begin, end, publish, write

from rag_core.answering.pipeline import QueryPipeline
from rag_core.retrieval.bm25 import Bm25Leg
from rag_core.retrieval.dense import DenseLeg
from rag_core.retrieval.fusion import fuse_rrf
from rag_core.retrieval.hybrid import Hybrid
from rag_core.scopes import SCOPES, Scope
from rag_core.storage.conversation_references import format_reference
from rag_core.storage.corpus import CorpusReader
from rag_core.storage.exposures import Exposure, Exposures
from rag_core.storage.keys import KeyFinder, Keys
from rag_core.storage.ledger import Ledger
from rag_core.storage.lexical.parameters import Bm25
from rag_core.storage.postgres import Postgres
from rag_core.storage.queue import IngestRequest, PushedDocument, Queue
from rag_core.types import Matrix, Prompt, Query, conversation_id
from serve.authentication.keys import KeyAuthenticator
from serve.gateway import build_fastapi
from serve.profiles import ServedProfiles
from serve.services import Services

SPARE_DOCUMENTS = 16
"""Documents of each tenant for requests that delete them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """A user of a tenant. Only this user may read the word."""

    tenant: str
    user: str
    word: str


ADA = Person(tenant="acme", user="ada", word="quillwort")
BOB = Person(tenant="acme", user="bob", word="tamarisk")
EVE = Person(tenant="umbra", user="eve", word="hellebore")
PEOPLE = (ADA, BOB, EVE)
KEYED_QUESTION = "Who replaces the keys?"
KEYED_DOCUMENT = {"documents": [{"id": "a", "text": "The same text."}]}
"""The question and the document that everyone has sent with an idempotency key."""
TENANT_WORDS = {"acme": "ocotillo", "umbra": "jacaranda"}


@dataclass(slots=True, kw_only=True)
class Belongings:
    """The ids of what a tenant has. `spare` are documents to delete."""

    documents: Sequence[str] = ()
    spare: list[str] = field(default_factory=list)
    chunk: str = ""
    job: str = ""
    failed_job: str = ""
    runs: Sequence[str] = ()
    experiments: Sequence[str] = ()
    collection: str = ""

    @property
    def ids(self) -> set[str]:
        rows = {*self.documents, *self.spare, self.chunk, self.job, self.failed_job}
        return {*rows, *self.runs, *self.experiments, self.collection}


class QuestionVectors:
    """A QueryEmbedder that knows the vectors of drafts."""

    async def embed(self, texts: Sequence[str]) -> Matrix:
        return vector(texts[0])[None]


class EchoingGenerator:
    """A Generator whose answers repeat the user's earlier messages: what it may not know would be seen."""

    async def stream(self, prompt: Prompt) -> AsyncGenerator[str, None]:
        yield "The keys are replaced every 45 days [1]. "
        for message in prompt.history:
            if message.role == "user":
                yield f"Earlier: {message.text} [1]. "


@dataclass(slots=True, kw_only=True)
class World:
    """A gateway with the data of the people. `answers` are ids of their answers, by user."""

    store: Postgres
    client: TestClient
    belongings: Mapping[str, Belongings]
    answers: dict[str, str] = field(default_factory=dict)
    _keys: dict[tuple[str, frozenset[Scope], float | None], str] = field(default_factory=dict)
    _cursors: dict[tuple[str, str, str], str] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=count)

    def key(self, person: Person, scopes: frozenset[Scope] = SCOPES, seconds: float | None = None) -> str:
        kind = (person.user, scopes, seconds)
        if kind not in self._keys:
            with self.store.connect() as connection:
                self._keys[kind] = (
                    Keys(connection, person.tenant).create(scopes, user=person.user, seconds=seconds).text
                )
        return self._keys[kind]

    def key_with_wrong_secret(self, person: Person) -> str:
        prefix, id, secret = self.key(person).split("_", 2)
        return f"{prefix}_{id}_{secret.swapcase()}"

    def revoked_key(self, person: Person) -> str:
        with self.store.connect() as connection:
            keys = Keys(connection, person.tenant)
            parts = keys.create(SCOPES, user=person.user)
            keys.revoke(parts.id)
        return parts.text

    def send(self, person: Person, method: str, path: str, **request: Any) -> dict[str, Any]:
        """Sends a request of a person who has all scopes, and returns the body of the response."""
        headers = {"Authorization": f"Bearer {self.key(person)}", **request.pop("headers", {})}
        response = self.client.request(method, path, headers=headers, **request)
        assert response.is_success, response.text
        return dict(response.json())

    def cursor(self, owner: Person, path: str, body: Mapping[str, Any] | None = None) -> str:
        """The cursor after the first row of the owner's listing."""
        kind = owner.user, path, json.dumps(body)
        if kind not in self._cursors:
            if body is None:
                page = self.send(owner, "GET", path, params={"limit": 1})
            else:
                page = self.send(owner, "POST", path, json={**body, "top_k": 1})
            self._cursors[kind] = page["next_cursor"]
            assert self._cursors[kind], f"{path} has only one page"
        return self._cursors[kind]

    def reference(self, owner: Person, session: str) -> str:
        query = Query(text="", tenant=owner.tenant, user_id=owner.user, session_id=session)
        return format_reference(conversation_id(query))

    def new_conversation(self, owner: Person) -> str:
        session = f"gone-{next(self._numbers)}"
        converse(self.store, Query(text=owner.word, tenant=owner.tenant, user_id=owner.user, session_id=session))
        return session

    def new_job(self, owner: Person, is_cancelled: bool = False) -> str:
        pushed = PushedDocument(id=f"pushed-{next(self._numbers)}", body=TENANT_WORDS[owner.tenant].encode())
        request = IngestRequest(collection="default", profile="default", settings={}, documents=(pushed,))
        with self.store.connect() as connection:
            job = Queue(connection, owner.tenant).enqueue(request).job_id
            if is_cancelled:
                Ledger(connection, owner.tenant).end(job, "cancelled")
        return str(job)

    def foreign_ids(self, person: Person) -> set[str]:
        """The ids that the person must not see."""
        others = {self.answers[other.user] for other in PEOPLE if other != person}
        references = {self.reference(other, "mine") for other in PEOPLE if other != person}
        strangers = [self.belongings[tenant].ids for tenant in TENANT_WORDS if tenant != person.tenant]
        return others.union(references, *strangers)


def foreign_words(person: Person | None) -> set[str]:
    """The words that the person must not read: all of them for a caller without a valid key."""
    words = {other.word for other in PEOPLE} | set(TENANT_WORDS.values())
    return words - {person.word, TENANT_WORDS[person.tenant]} if person else words


@contextmanager
def open_world(store: Postgres, home: Path) -> Iterator[World]:
    with patch.dict(os.environ, {"RAG_HOME": str(home)}):
        belongings = {tenant: _fill(store, home, tenant) for tenant in TENANT_WORDS}
        with TestClient(build_fastapi(ServedProfiles(build_services(store))), base_url="http://localhost") as client:
            world = World(store=store, client=client, belongings=belongings)
            for person in PEOPLE:
                _converse(world, person)
            yield world


def build_services(store: Postgres) -> Services:
    """Services that search the store, and require keys."""
    corpus = CorpusReader(store)
    legs = {"dense": DenseLeg(corpus, QuestionVectors(), SPACE), "bm25": Bm25Leg(corpus, Bm25(1.2, 0.75))}
    retriever = Hybrid(corpus=corpus, legs=legs, fusion=partial(fuse_rrf, k=60))
    services = storing_graph(store, retriever, KeyAuthenticator(KeyFinder(store)))
    assert isinstance(services.answerer, QueryPipeline)
    return replace(services, corpus=corpus, answerer=replace(services.answerer, generator=EchoingGenerator()))


def _fill(store: Postgres, home: Path, tenant: str) -> Belongings:
    """Adds the tenant's documents, jobs, evaluations and experiments, with the same names as those of the other."""
    word = TENANT_WORDS[tenant]
    documents = [
        draft(
            f"file:///{name}.md", f"The {name} keys of {word} are replaced.", f"The {word} signing keys", tenant=tenant
        )
        for name in ("a", "b")
    ]
    spare = [draft(f"file:///spare-{n}.md", f"Spare {n}", tenant=tenant) for n in range(SPARE_DOCUMENTS)]
    target = publish(store, *documents, *spare, tenant=tenant)
    collections = ["second", f"of-{tenant}"]
    for name in collections:
        publish(store, draft("file:///c.md", word, tenant=tenant, collection=name), tenant=tenant, collection=name)
    failing = [draft(f"file:///{word}-{n}.md", word, tenant=tenant) for n in range(2)]
    failed = begin(store, failing, tenant=tenant)
    write(failed, [draft_with_failure(one) for one in failing])
    end(failed)
    runs, experiments = [f"run-{tenant}-{n}" for n in range(2)], [f"split-{tenant}-{n}" for n in range(2)]
    for run in runs:
        write_run_folder(home / "runs" / run, [0.5], tenant=tenant, dataset=word)
    with store.connect() as connection:
        for name in experiments:
            exposure = Exposure(experiment=name, variant="control", bucket=1, conversation="c", tenant=tenant)
            Exposures(connection, tenant).add({f"ans-{name}": exposure})
    return Belongings(
        documents=[str(one.id) for one in documents],
        spare=[str(one.id) for one in spare],
        chunk=str(documents[0].chunks[0].id),
        job=str(target.job),
        failed_job=str(failed.job),
        runs=runs,
        experiments=experiments,
        collection=collections[1],
    )


def _converse(world: World, person: Person) -> None:
    """Opens the person's conversations. Two have the same ids as those of others."""
    question = f"Who replaces the signing keys of {person.word}?"
    request_body = {"question": KEYED_QUESTION}
    world.answers[person.user] = world.send(
        person, "POST", "/v1/answer", json=request_body, headers={"Idempotency-Key": idempotency_key(person)}
    )["id"]
    for session in ("mine", "second", f"only-{person.user}", f"talk-{person.user}"):
        request_body = {"question": question, "conversation_id": session}
        world.send(person, "POST", "/v1/answer", json=request_body)
    rating = {"answer_id": world.answers[person.user], "rating": 0}
    for path, body in (("/v1/feedback", rating), ("/v1/ingest", KEYED_DOCUMENT)):
        world.send(person, "POST", path, json=body, headers={"Idempotency-Key": idempotency_key(person)})


def idempotency_key(owner: Person) -> str:
    return f"key-of-{owner.user}"
