"""Many conversations at once, with a gateway that refuses some of their turns: the benchmark in small."""

import asyncio
from pathlib import Path

import gateways
import pytest
from fakes.serving import serve_profiles
from trees import hashing_settings, ingest, write

from benchmarks.conversations import Load, describe_losses, run_sessions
from rag_core.storage.fsck import find_violations
from rag_core.storage.postgres import Postgres
from serve.profiles import ServedProfiles

pytestmark = [pytest.mark.postgres, pytest.mark.slow]


def test_no_turn_is_lost_doubled_or_mixed_when_some_are_refused(store: Postgres, tmp_path: Path) -> None:
    ingest(store, write(tmp_path / "docs", {"keys.md": "# Keys\n\nThe signing keys are replaced every 45 days.\n"}))
    settings = hashing_settings(f"store.url={store.dsn}", "serving.answers=1", "serving.queue=2")
    load = Load()
    with serve_profiles(ServedProfiles(gateways.build_services(settings))) as url:
        asyncio.run(run_sessions(f"{url}/v1/answer", 8, 3, load))
    assert load.outcomes["503"] > 0
    assert load.unremembered == 0
    expected = "of 24 acknowledged turns: lost 0, doubled 0, of another session 0, out of order 0"
    assert describe_losses(store, load) == expected
    with store.connect("rag_worker") as connection:
        assert find_violations(connection) == []
