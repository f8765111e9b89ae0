"""Posting lists that this process has read: of immutable segments, so they are true for as long as those exist."""

from collections.abc import Mapping

OVERHEAD = 160
"""Bytes that a list costs beside its own, about."""


class PostingsCache:
    """By term and segment; an empty list says that the segment has no such term. The oldest terms go first.

    For one event loop.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._lists: dict[str, dict[int, bytes]] = {}

    def known(self, term: str) -> Mapping[int, bytes]:
        """By segment."""
        return self._lists.get(term, {})

    def add(self, term: str, lists: Mapping[int, bytes]) -> None:
        own = self._lists.setdefault(term, {})
        self._bytes -= _size(own)
        own.update(lists)
        self._bytes += _size(own)
        while self._bytes > self._most_bytes:
            self._bytes -= _size(self._lists.pop(next(iter(self._lists))))


def _size(lists: Mapping[int, bytes]) -> int:
    return OVERHEAD * len(lists) + sum(map(len, lists.values()))
