"""A request for every route and method of the API: each names something that belongs to its owner."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from access_world import KEYED_DOCUMENT, KEYED_QUESTION, Person, World, idempotency_key

from rag_core.scopes import Scope

Statuses: TypeAlias = tuple[int, int, int]
"""The expected statuses of the owner, of another user of the tenant, and of an administrator of another tenant."""

OF_USER: Statuses = (200, 404, 404)
OF_TENANT: Statuses = (200, 200, 404)
OF_EVERYONE: Statuses = (200, 200, 200)
NO_PROVIDER: Statuses = (404, 404, 404)
"""The mode `keys` has no provider of tokens."""
CURSOR: Statuses = (200, 422, 422)
"""A cursor is valid only for the user who received it."""

PLAIN, PATH, BODY, QUERY, CURSOR_PLACE, KEY = "plain", "path", "body", "query", "cursor", "idempotency key"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A request without its method and its credentials."""

    path: str
    params: Mapping[str, Any] = field(default_factory=dict)
    json: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Example:
    """A request of the caller that names what belongs to the owner. `place` says where it names it."""

    place: str
    build: Callable[[World, Person, Person], Sent]
    statuses: Statuses


@dataclass(frozen=True, slots=True)
class Operation:
    """A route and method. `scope` is the one that callers need, or None if the route is public."""

    scope: Scope | None
    examples: Sequence[Example]


def plain_example(path: str, statuses: Statuses = OF_EVERYONE) -> Example:
    return Example(PLAIN, lambda _world, _owner, _caller: Sent(path=path), statuses)


def listing(path: str, *more: Example) -> tuple[Example, ...]:
    """The examples of a listing: its first page, and the page after a cursor of the owner."""
    return (plain_example(path), cursor(lambda _world, _owner: path), *more)


def cursor(path: Callable[[World, Person], str], statuses: Statuses = CURSOR) -> Example:
    def build(world: World, owner: Person, _caller: Person) -> Sent:
        listing = path(world, owner)
        return Sent(path=listing, params={"limit": 1, "cursor": world.cursor(owner, listing)})

    return Example(CURSOR_PLACE, build, statuses)


def path_example(path: Callable[[World, Person], str], statuses: Statuses = OF_TENANT, **sent: Any) -> Example:
    return Example(PATH, lambda world, owner, _caller: Sent(path=path(world, owner), **sent), statuses)


def body(path: str, build: Callable[[World, Person, Person], Any], statuses: Statuses = OF_EVERYONE) -> Example:
    return Example(BODY, lambda world, owner, caller: Sent(path=path, json=build(world, owner, caller)), statuses)


def idempotent_request(path: str, build: Callable[[World, Person], Any], statuses: Statuses) -> Example:
    """A request with an idempotency key that the owner has used, too."""
    return Example(
        KEY,
        lambda world, owner, caller: Sent(
            path=path, json=build(world, caller), headers={"Idempotency-Key": idempotency_key(owner)}
        ),
        statuses,
    )


def document(world: World, owner: Person) -> str:
    return f"/v1/documents/{world.belongings[owner.tenant].documents[0]}"


def job(world: World, owner: Person) -> str:
    return f"/v1/jobs/{world.belongings[owner.tenant].job}"


def failed_job(world: World, owner: Person) -> str:
    return f"/v1/jobs/{world.belongings[owner.tenant].failed_job}"


def experiment(world: World, owner: Person) -> str:
    return f"/v1/experiments/{world.belongings[owner.tenant].experiments[0]}"


def question(world: World, owner: Person, _caller: Person) -> dict[str, Any]:
    return {"question": "Who replaces the signing keys?", "conversation_id": f"talk-{owner.user}"}


def referring_question(world: World, owner: Person, _caller: Person) -> dict[str, Any]:
    return {"question": "And the locks?", "conversation_id": world.reference(owner, "second")}


def streamed_question(world: World, owner: Person, caller: Person) -> dict[str, Any]:
    return {**question(world, owner, caller), "stream": True}


def search(_world: World, owner: Person, _caller: Person) -> dict[str, Any]:
    return {"query": "signing keys", "conversation_id": f"talk-{owner.user}", "top_k": 1}


def chat(_world: World, owner: Person, _caller: Person) -> dict[str, Any]:
    message = {"role": "user", "content": "Who replaces the signing keys?"}
    return {"model": "default", "messages": [message], "rag": {"conversation_id": f"talk-{owner.user}"}}


def next_page(world: World, owner: Person, _caller: Person) -> Sent:
    query_body = {"query": "signing keys"}
    page_body = {**query_body, "top_k": 1, "cursor": world.cursor(owner, "/v1/retrieve", query_body)}
    return Sent(path="/v1/retrieve", json=page_body)


def messages(session: str) -> Callable[[World, Person], str]:
    return lambda _world, owner: f"/v1/conversations/{session}-{owner.user}/messages"


OPERATIONS: Mapping[tuple[str, str], Operation] = {
    ("GET", "/healthz"): Operation(None, [plain_example("/healthz")]),
    ("GET", "/readyz"): Operation(None, [plain_example("/readyz")]),
    ("GET", "/.well-known/oauth-protected-resource"): Operation(
        None, [plain_example("/.well-known/oauth-protected-resource", NO_PROVIDER)]
    ),
    ("POST", "/v1/retrieve"): Operation(
        "retrieve:read", [body("/v1/retrieve", search), Example(CURSOR_PLACE, next_page, CURSOR)]
    ),
    ("POST", "/v1/vector_stores/{collection}/search"): Operation(
        "retrieve:read",
        [body("/v1/vector_stores/default/search", lambda *_: {"query": "signing keys"})],
    ),
    ("POST", "/v1/answer"): Operation(
        "chat:write",
        [
            body("/v1/answer", question),
            body("/v1/answer", referring_question),
            body("/v1/answer", streamed_question),
            idempotent_request("/v1/answer", lambda *_: {"question": KEYED_QUESTION}, OF_EVERYONE),
        ],
    ),
    ("POST", "/v1/chat/completions"): Operation(
        "chat:write",
        [
            body("/v1/chat/completions", chat),
            body("/v1/chat/completions", lambda *about: {**chat(*about), "stream": True}),
        ],
    ),
    ("GET", "/v1/models"): Operation("retrieve:read", [plain_example("/v1/models")]),
    ("POST", "/v1/feedback"): Operation(
        "chat:write",
        [
            body(
                "/v1/feedback",
                lambda world, owner, _: {"answer_id": world.answers[owner.user], "rating": 1},
                (201, 404, 404),
            ),
            idempotent_request(
                "/v1/feedback",
                lambda world, caller: {"answer_id": world.answers[caller.user], "rating": 0},
                (201, 201, 201),
            ),
        ],
    ),
    ("GET", "/v1/conversations"): Operation(
        "chat:write",
        listing(
            "/v1/conversations",
            Example(
                QUERY,
                lambda _world, owner, _caller: Sent(path="/v1/conversations", params={"user": owner.user}),
                (200, 403, 200),
            ),
        ),
    ),
    ("GET", "/v1/conversations/{id}/messages"): Operation(
        "chat:write",
        [
            path_example(messages("only"), OF_USER),
            path_example(lambda world, owner: f"/v1/conversations/{world.reference(owner, 'mine')}/messages", OF_USER),
            path_example(lambda *_: "/v1/conversations/mine/messages", OF_EVERYONE),
            cursor(messages("only")),
        ],
    ),
    ("PUT", "/v1/conversations/{id}/participants"): Operation(
        "chat:write",
        [
            path_example(
                lambda _world, owner: f"/v1/conversations/only-{owner.user}/participants", OF_USER, json={"users": []}
            ),
            path_example(
                lambda world, owner: f"/v1/conversations/{world.reference(owner, 'mine')}/participants",
                OF_USER,
                json={"users": []},
            ),
        ],
    ),
    ("DELETE", "/v1/conversations/{id}"): Operation(
        "memory:delete",
        [
            path_example(lambda world, owner: f"/v1/conversations/{world.new_conversation(owner)}", (204, 404, 404)),
            path_example(
                lambda world, owner: f"/v1/conversations/{world.reference(owner, world.new_conversation(owner))}",
                (204, 404, 404),
            ),
        ],
    ),
    ("GET", "/v1/documents"): Operation(
        "retrieve:read",
        listing(
            "/v1/documents",
            Example(QUERY, lambda *_: Sent(path="/v1/documents", params={"collection": "second"}), OF_EVERYONE),
        ),
    ),
    ("GET", "/v1/documents/{id}"): Operation("retrieve:read", [path_example(document)]),
    ("DELETE", "/v1/documents/{id}"): Operation(
        "documents:delete",
        [
            path_example(
                lambda world, owner: f"/v1/documents/{world.belongings[owner.tenant].spare.pop()}", (204, 204, 404)
            )
        ],
    ),
    ("GET", "/v1/documents/{id}/content"): Operation(
        "retrieve:read", [path_example(lambda world, owner: f"{document(world, owner)}/content")]
    ),
    ("GET", "/v1/documents/{id}/chunks"): Operation(
        "retrieve:read",
        [
            path_example(lambda world, owner: f"{document(world, owner)}/chunks"),
            cursor(lambda world, owner: f"{document(world, owner)}/chunks"),
        ],
    ),
    ("GET", "/v1/sources/{chunk_id}"): Operation(
        "retrieve:read", [path_example(lambda world, owner: f"/v1/sources/{world.belongings[owner.tenant].chunk}")]
    ),
    ("GET", "/v1/collections"): Operation("retrieve:read", listing("/v1/collections")),
    ("GET", "/v1/profiles"): Operation("retrieve:read", [plain_example("/v1/profiles")]),
    ("POST", "/v1/ingest"): Operation(
        "ingest:write",
        [
            body("/v1/ingest", lambda *_: {"documents": [{"id": "a", "text": "A text."}]}, (202, 202, 202)),
            idempotent_request("/v1/ingest", lambda *_: KEYED_DOCUMENT, (202, 202, 202)),
        ],
    ),
    ("GET", "/v1/jobs"): Operation("jobs:read", listing("/v1/jobs")),
    ("GET", "/v1/jobs/{id}"): Operation("jobs:read", [path_example(job), cursor(failed_job)]),
    ("POST", "/v1/jobs/{id}/cancel"): Operation(
        "ingest:write", [path_example(lambda world, owner: f"/v1/jobs/{world.new_job(owner)}/cancel")]
    ),
    ("POST", "/v1/jobs/{id}/retry"): Operation(
        "ingest:write",
        [
            path_example(
                lambda world, owner: f"/v1/jobs/{world.new_job(owner, is_cancelled=True)}/retry", (202, 202, 404)
            )
        ],
    ),
    ("GET", "/v1/jobs/{id}/events"): Operation(
        "jobs:read",
        [
            path_example(lambda world, owner: f"{failed_job(world, owner)}/events"),
            path_example(lambda world, owner: f"{job(world, owner)}/events", headers={"Last-Event-ID": "0"}),
        ],
    ),
    ("GET", "/v1/evaluations"): Operation("evaluate:write", listing("/v1/evaluations")),
    ("GET", "/v1/evaluations/{id}"): Operation(
        "evaluate:write",
        [path_example(lambda world, owner: f"/v1/evaluations/{world.belongings[owner.tenant].runs[0]}")],
    ),
    ("GET", "/v1/experiments"): Operation("evaluate:write", listing("/v1/experiments")),
    ("GET", "/v1/experiments/{name}"): Operation("evaluate:write", [path_example(experiment)]),
    ("GET", "/v1/experiments/{name}/assignment"): Operation(
        "evaluate:write",
        [
            path_example(lambda world, owner: f"{experiment(world, owner)}/assignment", params={"unit": "mine"}),
        ],
    ),
}
"""The examples by method and path of `/openapi.json`."""
