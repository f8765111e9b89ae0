"""The thread that stores rows of the audit."""

import pytest
from fakes.blocked_store import BlockedStore

from rag_core.telemetry.metrics import install_sink
from rag_core.telemetry.operation import Operation
from serve import audit
from serve.audit import AuditLog


def test_a_gateway_that_ends_does_not_wait_for_a_store_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lost: list[tuple[float, str]] = []
    install_sink(lambda _metric, value, labels: lost.append((value, labels["tenant_id"])))
    monkeypatch.setattr(audit, "BATCH", 1)
    store = BlockedStore()
    log = AuditLog(store, "always")  # type: ignore[arg-type]
    for tenant in ("a", "b", "a", "b", "b"):
        log.add(Operation(name="answer", tenant=tenant, user="ada"), "ok", {})
        assert store.connecting.wait(60)
    log.close(0.001)
    assert [message.partition(":")[0] for message in caplog.messages] == [
        "rows of the audit are lost (1)",
        "rows of the audit are lost (3)",
    ]
    store.opened.set()
    log.wait(60)
    assert (store.connections, sum(count for count, _ in lost)) == (1, 5)
