"""A store that does not answer."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event
from typing import Any

from rag_core.errors import StoreError


@dataclass
class BlockedStore:
    """A store whose connections wait until `opened` is set, and then fail."""

    opened: Event = field(default_factory=Event)
    connecting: Event = field(default_factory=Event)
    connections: int = 0

    @contextmanager
    def connect(self) -> Iterator[Any]:
        self.connections += 1
        self.connecting.set()
        self.opened.wait(60)
        raise StoreError("the store has no space")
        yield
