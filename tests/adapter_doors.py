"""Both doors to the same two tenants: a store, a gateway over it that requires keys, and keys for it."""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fakes.serving import serve_profiles
from trees import HASHING, hashing_settings, write

from integrations.doors import Door, HttpDoor, PythonDoor
from rag_core import open_knowledge_base
from rag_core.scopes import ROLES
from rag_core.storage.keys import Keys
from rag_core.storage.postgres import Postgres
from serve.profiles import ServedProfiles
from serve.services import open_shared_resources

HARBOUR, MUSEUM = "harbour-team", "museum-team"
FILES = {
    HARBOUR: {
        "keys.md": "---\nkind: rule\nyear: 2024\n---\n# Signing keys\n\nThe signing keys are replaced every 45 days.\n",
        "gates.md": "---\nkind: rule\nyear: 2020\n---\n# Gates\n\nThe sluice gates are opened at spring tide.\n",
        "memo.md": "---\nkind: memo\nyear: 2024\n---\n# Memo\n\nWho replaces the signing keys? The harbour master.\n",
    },
    MUSEUM: {"vitrine.md": "# Vitrines\n\nThe keys of the vitrines are replaced every year.\n"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Doors:
    """The doors of both kinds. `url` is the gateway's, and `key` one of the tenant harbour-team."""

    store: Postgres
    url: str
    key: str
    opened: dict[tuple[str, str], Door] = field(default_factory=dict)

    def open(self, kind: str, tenant: str = HARBOUR) -> Door:
        """The door of this kind, `python` or `http`, which all tests of a module share."""
        if (kind, tenant) not in self.opened:
            self.opened[kind, tenant] = self._open(kind, tenant)
        return self.opened[kind, tenant]

    def close(self) -> None:
        for door in self.opened.values():
            door.close()

    def _open(self, kind: str, tenant: str) -> Door:
        if kind == "python":
            settings = (*HASHING, "answering.budget=none", f"tenant={tenant}")
            return PythonDoor(open_knowledge_base(self.store.dsn, settings=settings))
        return HttpDoor(self.url, self.key if tenant == HARBOUR else create_key(self.store, tenant))


def create_key(store: Postgres, tenant: str) -> str:
    with store.connect() as connection:
        return Keys(connection, tenant).create(ROLES["reader"]).text


@contextmanager
def open_doors(store: Postgres, folder: Path) -> Iterator[Doors]:
    for tenant, files in FILES.items():
        with open_knowledge_base(store.dsn, settings=(*HASHING, f"tenant={tenant}")) as knowledge:
            knowledge.ingest(write(folder / tenant, files))
    settings = hashing_settings(f"store.url={store.dsn}", "auth.mode=keys", "answering.budget=none")
    services = open_shared_resources(settings).build_services(settings)
    with ExitStack() as stack:
        url = stack.enter_context(serve_profiles(ServedProfiles(services)))
        yield stack.enter_context(closing(Doors(store=store, url=url, key=create_key(store, HARBOUR))))
