"""Every route and method, with every kind of credentials: the status, and no word and no id of others.

`OPERATIONS` has examples for all routes of `/openapi.json`; a route without one fails the test.
`python -m benchmarks.access_mutants` shows that the matrix notices missing conditions.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import pytest
from access_examples import OPERATIONS, Example, Operation, Sent
from access_world import ADA, BOB, EVE, PEOPLE, Person, World, foreign_words, open_world
from fakes.serving import scripted_graph
from httpx import Response

from rag_core.scopes import SCOPES
from rag_core.storage.postgres import Postgres
from serve.gateway import build_fastapi
from serve.profiles import ServedProfiles


@dataclass(frozen=True, slots=True)
class Credentials:
    """A kind of credentials with a key, and the status that is expected with it. `caller` is None if it is invalid."""

    name: str
    key: str
    caller: Person | None
    status: int


@pytest.fixture(scope="module")
def world(module_store: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with open_world(module_store, tmp_path_factory.mktemp("home")) as world:
        yield world


@pytest.fixture(scope="module")
def cells() -> Iterator[Counter[tuple[str, str]]]:
    """The number of requests by route and kind of credentials, which is printed at the end."""
    cells: Counter[tuple[str, str]] = Counter()
    yield cells
    print_counts(cells)


def test_every_route_has_an_example_and_its_scope() -> None:
    schema = build_fastapi(ServedProfiles(scripted_graph())).openapi()
    scopes = {
        (method.upper(), path): [scope for required in operation.get("security", []) for scope in required["bearer"]]
        for path, operations in schema["paths"].items()
        for method, operation in operations.items()
    }
    assert scopes == {name: [operation.scope] if operation.scope else [] for name, operation in OPERATIONS.items()}


@pytest.mark.postgres
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("method", "route"), OPERATIONS)
def test_no_caller_reads_what_belongs_to_others(
    method: str, route: str, world: World, cells: Counter[tuple[str, str]]
) -> None:
    """The owner is Ada or Eve, so the requests name the ids of both tenants."""
    operation, wrong = OPERATIONS[method, route], []
    for owner, example in product((ADA, EVE), operation.examples):
        for credentials in list_credentials(world, owner, operation, example):
            cells[f"{method} {route}", credentials.name] += 1
            sent = example.build(world, owner, credentials.caller or owner)
            response = send(world, method, sent, credentials.key)
            case = f"{owner.user}'s {example.place}, {credentials.name}"
            wrong += [f"{case}: {finding}" for finding in check(world, owner, sent, credentials, response)]
    if method == "POST":
        wrong += find_foreign_messages(world)
    assert not wrong, "\n" + "\n".join(wrong)


def list_credentials(world: World, owner: Person, operation: Operation, example: Example) -> Iterator[Credentials]:
    """All kinds that the route distinguishes, the right ones last: they can delete what the others must not see."""
    own, colleague, stranger = example.statuses
    scope = operation.scope
    if scope is None:
        yield Credentials("no key", "", None, own)
        return
    yield Credentials("no key", "", None, 401)
    yield Credentials("garbage", "rk_12345678_garbage", None, 401)
    yield Credentials("wrong secret", world.key_with_wrong_secret(owner), None, 401)
    yield Credentials("expired", world.key(owner, seconds=-1), None, 401)
    yield Credentials("revoked", world.revoked_key(owner), None, 401)
    yield Credentials("wrong scope", world.key(owner, SCOPES - {scope}), owner, 403)
    yield Credentials("another tenant", world.key(EVE if owner == ADA else ADA), EVE if owner == ADA else ADA, stranger)
    if owner == ADA:
        yield Credentials("another user", world.key(BOB, SCOPES - {"admin"}), BOB, colleague)
    yield Credentials("right", world.key(owner, frozenset({scope})), owner, own)


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


def print_counts(cells: Counter[tuple[str, str]]) -> None:
    kinds = list(dict.fromkeys(kind for _, kind in cells))
    width = max(len(route) for route, _ in cells)
    print("\n" + " " * width, *kinds, sep="  ")
    for route in dict.fromkeys(route for route, _ in cells):
        print(route.ljust(width), *(str(cells[route, kind]).rjust(len(kind)) for kind in kinds), sep="  ")
    print(f"{len({route for route, _ in cells})} routes, {len(kinds)} kinds of credentials, {cells.total()} requests")
