"""The thread that stores answers."""

import pytest
from fakes.blocked_store import BlockedStore
from fakes.replies import stored_reply

from serve import replies
from serve.replies import ReplyLog


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
