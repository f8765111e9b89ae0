"""The thread that stores answers."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import pytest
from fakes.replies import stored_reply

from rag_core.errors import StoreError
from serve import replies
from serve.replies import ReplyLog


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


def test_answers_go_on_while_the_store_is_blocked(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(replies, "MAX_WAITING", 2)
    store = BlockedStore()
    log = ReplyLog(store)  # type: ignore[arg-type]
    log.add("tenant", stored_reply("ans_0"))
    assert store.connecting.wait(60)
    for number in range(1, 4):
        log.add("tenant", stored_reply(f"ans_{number}"))
    log.wait(0.001)
    assert caplog.messages == ["answer ans_3 is not stored: 2 answers wait for the store"]

    store.opened.set()
    log.wait(60)
    assert store.connections == 2
    assert caplog.messages[1:] == [
        "answers not stored (1): the store has no space",
        "answers not stored (2): the store has no space",
    ]
    log.add("tenant", stored_reply("ans_4"))
    log.wait(60)
    assert store.connections == 3
