"""The containers of a source that were used last."""

from collections import Counter, OrderedDict
from threading import RLock

from rag_core.ingestion.containers.container import Container
from rag_core.ingestion.containers.uris import file_uri

MAX_OPEN = 4
MAX_CHANGES = 8
"""How often a file is opened again because a member was not as listed. A damaged archive has many such members."""


class OpenContainers:
    """A cache of open containers by uri, so that 1,000 members do not decompress an archive 1,000 times.

    It lives as long as the source. A copy, such as that of a worker, begins empty. `lock` is for opening: other threads
    need the same container.
    """

    def __init__(self) -> None:
        self.lock = RLock()
        self._containers: OrderedDict[str, Container | None] = OrderedDict()
        self._changes: Counter[str] = Counter()

    def __reduce__(self) -> tuple[type["OpenContainers"], tuple[()]]:
        return OpenContainers, ()

    def __contains__(self, uri: str) -> bool:
        return uri in self._containers

    def get(self, uri: str) -> Container | None:
        self._containers.move_to_end(uri)
        return self._containers[uri]

    def add(self, uri: str, container: Container | None) -> None:
        self._containers[uri] = container
        if len(self._containers) > MAX_OPEN:
            self._containers.popitem(last=False)

    def forget(self, uri: str) -> None:
        """Removes every container of the file."""
        with self.lock:
            for key in [key for key in self._containers if file_uri(key) == file_uri(uri)]:
                del self._containers[key]

    def forget_changed(self, uri: str) -> bool:
        """Removes every container of a file that seems to have changed; False if that was so too often."""
        with self.lock:
            self._changes[file_uri(uri)] += 1
            if self._changes[file_uri(uri)] > MAX_CHANGES:
                return False
            self.forget(uri)
            return True
