"""Writers of audited changes that are killed at 20 random moments."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

import pytest
from drafts import TENANT
from fakes.replies import stored_reply
from targets import superuser
from waiting import wait_until

from rag_core.storage.audit_reading import Audit
from rag_core.storage.postgres import Postgres
from rag_core.storage.replies import Replies

pytestmark = [pytest.mark.postgres, pytest.mark.chaos]

KILLS = 20
WRITE = """
import random, sys
from drafts import TENANT
from rag_core.storage.keys import Keys
from rag_core.storage.ledger import Ledger
from rag_core.storage.postgres import Postgres
from rag_core.storage.queue import IngestRequest, PushedDocument, Queue
from rag_core.storage.replies import Feedback, Replies

draw = random.Random(sys.argv[2])
request = IngestRequest(
    collection="default", profile="default", settings={}, documents=(PushedDocument(id="a", body=b"a"),))
with Postgres(sys.argv[1]).connect() as connection:
    keys, queue, ledger = Keys(connection, TENANT), Queue(connection, TENANT), Ledger(connection, TENANT)
    while True:
        match draw.randrange(3):
            case 0:
                id = keys.create({"admin"}).id
                print("keys.create", id, flush=True)
                keys.revoke(id)
                print("keys.revoke", id, flush=True)
            case 1:
                id = queue.enqueue(request).job_id
                print("ingest", id, flush=True)
                ledger.end(id, "cancelled")
                print("jobs.cancel", id, flush=True)
            case 2:
                Replies(connection, TENANT).add_feedback(Feedback(answer_id="ans_1", rating=1))
                print("feedback.give", "ans_1", flush=True)
"""
CHANGES = """
select 'keys.create', id from rag.api_keys
union all select 'keys.revoke', id from rag.api_keys where revoked_at is not null
union all select 'ingest', id::text from rag.jobs
union all select 'jobs.cancel', id::text from rag.jobs where status = 'cancelled'
union all select 'feedback.give', answer_id from rag.feedback"""
RECORDED = """
select content::jsonb ->> 'operation', content::jsonb #>> '{resource,ids,0}' from rag.audit
where content::jsonb ->> 'operation' not like 'audit.%'"""
OTHERS = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"


def write_until_killed(store: Postgres, draw: random.Random) -> list[tuple[str, str]]:
    """The changes that a process has acknowledged until it was killed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command: Sequence[str] = [sys.executable, "-c", WRITE, store.dsn, str(draw.random())]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        lines = [process.stdout.readline() for _ in range(draw.randint(1, 30))]
        time.sleep(draw.uniform(0, 0.01))
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.readlines()
    return [(operation, id) for operation, id in (line.split() for line in lines if line.endswith("\n"))]


@pytest.mark.timeout(600)
def test_after_20_kills_every_acknowledged_change_has_its_row_and_no_row_is_without_its_change(
    store: Postgres,
) -> None:
    draw, acknowledged = random.Random(33), []
    with store.connect() as connection:
        Replies(connection, TENANT).add([stored_reply("ans_1")], timeout=60)
    for _ in range(KILLS):
        acknowledged += write_until_killed(store, draw)
    with superuser(store) as connection:
        wait_until(lambda: connection.execute(OTHERS).fetchone() == (0,))
        changes = sorted(connection.execute(CHANGES.encode()).fetchall())
        recorded = sorted(connection.execute(RECORDED.encode()).fetchall())
    assert recorded == changes
    assert len(acknowledged) <= len(recorded) <= len(acknowledged) + KILLS
    assert set(acknowledged) <= set(recorded)
    with store.connect() as connection:
        result = Audit(connection, TENANT).verify()
    assert (result.broken, result.end.n) == (None, len(recorded) + 1)
