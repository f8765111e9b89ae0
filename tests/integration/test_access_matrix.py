"""Every route and method, with every kind of credentials: the status, and no word and no id of others.

`OPERATIONS` has examples for all routes of `/openapi.json`; a route without one fails the test.
`python tests/access_mutants.py` shows that the matrix notices missing conditions.
"""

from collections import Counter
from collections.abc import Iterator

import pytest
from access_examples import OPERATIONS
from access_matrix import try_operation
from access_world import World, open_world
from fakes.serving import scripted_graph

from rag_core.storage.postgres import Postgres
from serve.gateway import build_fastapi
from serve.profiles import ServedProfiles


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
        (method.upper(), path): [
            scope for required in operation.get("security", []) for scope in required.get("bearer", [])
        ]
        for path, operations in schema["paths"].items()
        for method, operation in operations.items()
    }
    assert scopes == {name: [operation.scope] if operation.scope else [] for name, operation in OPERATIONS.items()}


@pytest.mark.postgres
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("method", "route"), OPERATIONS)
def test_no_caller_reads_what_belongs_to_others(
    method: str, route: str, world: World, cells: Counter[tuple[str, str]]
) -> None:
    wrong = list(try_operation(world, method, route, cells))
    assert not wrong, "\n" + "\n".join(wrong)


def print_counts(cells: Counter[tuple[str, str]]) -> None:
    kinds = list(dict.fromkeys(kind for _, kind in cells))
    width = max(len(route) for route, _ in cells)
    print("\n" + " " * width, *kinds, sep="  ")
    for route in dict.fromkeys(route for route, _ in cells):
        print(route.ljust(width), *(str(cells[route, kind]).rjust(len(kind)) for kind in kinds), sep="  ")
    print(f"{len({route for route, _ in cells})} routes, {len(kinds)} kinds of credentials, {cells.total()} requests")
