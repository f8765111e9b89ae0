"""Requests with every kind of credentials: the expected status, and what a response must not contain."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from access_examples import OPERATIONS, Example, Operation, Sent
from access_world import ADA, BOB, EVE, PEOPLE, Person, World, foreign_words
from httpx import Response

from rag_core.scopes import SCOPES


@dataclass(frozen=True, slots=True)
class Credentials:
    """A kind of credentials with a key, and the status that is expected with it. `caller` is None if it is invalid."""

    name: str
    key: str
    caller: Person | None
    status: int


def try_operation(world: World, method: str, route: str, cells: Counter[tuple[str, str]]) -> Iterator[str]:
    """Yields what is wrong with the responses of a route. Counts the requests by route and kind of credentials.

    The owner is Ada or Eve, so the requests name the ids of both tenants.
    """
    operation = OPERATIONS[method, route]
    for owner, example in product((ADA, EVE), operation.examples):
        for credentials in list_credentials(world, owner, operation, example):
            cells[f"{method} {route}", credentials.name] += 1
            sent = example.build(world, owner, credentials.caller or owner)
            response = send(world, method, sent, credentials.key)
            case = f"{method} {route}, {owner.user}'s {example.place}, {credentials.name}"
            yield from (f"{case}: {finding}" for finding in check(world, owner, sent, credentials, response))
    if method == "POST":
        yield from find_foreign_messages(world)


def list_credentials(world: World, owner: Person, operation: Operation, example: Example) -> Iterator[Credentials]:
    """All kinds that the route distinguishes, the right ones last: they can delete what the others must not see."""
    owner_status, colleague_status, stranger_status = example.statuses
    scope = operation.scope
    if scope is None:
        yield Credentials("no key", "", None, owner_status)
        return
    yield Credentials("no key", "", None, 401)
    yield Credentials("garbage", "rk_12345678_garbage", None, 401)
    yield Credentials("wrong secret", world.key_with_wrong_secret(owner), None, 401)
    yield Credentials("expired", world.key(owner, seconds=-1), None, 401)
    yield Credentials("revoked", world.revoked_key(owner), None, 401)
    yield Credentials("wrong scope", world.key(owner, SCOPES - {scope}), owner, 403)
    yield Credentials(
        "another tenant", world.key(EVE if owner == ADA else ADA), EVE if owner == ADA else ADA, stranger_status
    )
    if owner == ADA:
        yield Credentials("another user", world.key(BOB, SCOPES - {"admin"}), BOB, colleague_status)
    yield Credentials("right", world.key(owner, frozenset({scope})), owner, owner_status)


def send(world: World, method: str, sent: Sent, key: str) -> Response:
    headers = {**sent.headers, **({"Authorization": f"Bearer {key}"} if key else {})}
    return world.client.request(method, sent.path, params=sent.params, json=sent.json, headers=headers)


def check(world: World, owner: Person, sent: Sent, credentials: Credentials, response: Response) -> Iterator[str]:
    """Yields what is wrong with the response."""
    if response.status_code != credentials.status:
        yield f"{response.status_code} instead of {credentials.status}: {response.text[:200]}"
    text = f"{response.headers}{response.text}".casefold()
    secrets = foreign_words(credentials.caller)
    if credentials.caller:
        secrets |= world.foreign_ids(credentials.caller)
    named = f"{sent.path}{sent.params}{sent.json}"
    yield from (f"contains {secret}" for secret in sorted(secrets) if secret in text and secret not in named)
    if credentials.caller != owner and "idempotency-replayed" in response.headers:
        yield "replays the response of another user"


def find_foreign_messages(world: World) -> Iterator[str]:
    """Yields the conversations to which the requests of others added messages."""
    for person in PEOPLE:
        for session in ("mine", f"only-{person.user}", f"talk-{person.user}"):
            text = str(world.send(person, "GET", f"/v1/conversations/{session}/messages", params={"limit": 200}))
            yield from (f"{session} of {person.user} has {word}" for word in foreign_words(person) if word in text)
