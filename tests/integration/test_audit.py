"""The audit: changes and their rows, the chain of hashes, and what breaks it."""

import io
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from drafts import TENANT, draft
from fakes.conversations import converse
from fakes.replies import stored_reply
from psycopg import Connection
from targets import publish, superuser

from rag_core.errors import NotFoundError, UsageError
from rag_core.storage.audit import Change, Entry, append_entries, record
from rag_core.storage.audit_reading import Audit, Verification, verify_export
from rag_core.storage.audit_retention import keep_audit_months
from rag_core.storage.catalog import Catalog
from rag_core.storage.conversation_list import ConversationList
from rag_core.storage.keys import Keys
from rag_core.storage.ledger import Ledger
from rag_core.storage.postgres import Postgres, Role, transaction
from rag_core.storage.queue import IngestRequest, PushedDocument, Queue
from rag_core.storage.replies import Feedback, Replies
from rag_core.telemetry.operation import Operation, enter_operation
from rag_core.types import Query

pytestmark = pytest.mark.postgres

STRANGER = "a-stranger"


def entries(store: Postgres, tenant: str = TENANT) -> list[dict[str, Any]]:
    """The rows of the audit, oldest first, without the row of this reading."""
    with store.connect() as connection:
        return Audit(connection, tenant).list_entries(limit=10_000)[:0:-1]


def verify(store: Postgres, tenant: str = TENANT) -> Verification:
    with store.connect() as connection:
        return Audit(connection, tenant).verify()


def add(connection: "Connection[Any]", count: int, tenant: str = TENANT) -> None:
    for number in range(count):
        with transaction(connection, tenant):
            record(connection, tenant, Change(operation="test", kind="number", ids=[str(number)]))


def record_and_fail(connection: "Connection[Any]") -> None:
    record(connection, TENANT, Change(operation="test", kind="number"))
    connection.execute("select 1 / 0")


def tamper(store: Postgres, statement: str) -> None:
    """Executes a statement as a superuser who has turned the triggers off."""
    with superuser(store) as connection:
        connection.execute("set session_replication_role = replica")
        assert connection.execute(statement.encode()).rowcount == 1


def test_every_change_has_its_row(store: Postgres) -> None:
    publish(store, draft("file:///a.md", "one"))
    converse(store, Query(text="who?", tenant=TENANT, session_id="s", user_id="ann"))
    with store.connect() as connection:
        job = Queue(connection, TENANT).enqueue(
            IngestRequest(
                collection="default", profile="default", settings={}, documents=(PushedDocument(id="a", body=b"a"),)
            )
        )
        Ledger(connection, TENANT).end(job.job_id, "cancelled")
        Ledger(connection, TENANT).end(job.job_id, "cancelled")  # ended before: changes nothing
        catalog = Catalog(connection, TENANT)
        catalog.drop_documents("default", [catalog.document("default", "file:///a.md")["id"]])
        key = Keys(connection, TENANT).create({"admin"})
        Keys(connection, TENANT).revoke(key.id)
        replies = Replies(connection, TENANT)
        replies.add([stored_reply("ans_1")], timeout=60)
        for _ in range(2):
            replies.add_feedback(Feedback(answer_id="ans_1", rating=1), "a key", "same")
        ConversationList(connection, TENANT, (), "ann").invite("s", ["bob"])
        ConversationList(connection, TENANT, (), "ann").erase("s", str)
        catalog.drop_collection("default")
    assert [entry["operation"] for entry in entries(store)] == [
        *("ingest", "jobs.end", "ingest", "jobs.cancel", "documents.delete", "keys.create", "keys.revoke"),
        *("feedback.give", "conversations.share", "conversations.erase", "collections.drop"),
    ]
    assert verify(store).broken is None


def test_a_change_that_fails_has_no_row(store: Postgres) -> None:
    with store.connect() as connection:
        with pytest.raises(NotFoundError):
            Keys(connection, TENANT).revoke("unknown1")
        with pytest.raises(NotFoundError):
            ConversationList(connection, TENANT, ()).erase("unknown", str)
        with pytest.raises(psycopg.errors.DivisionByZero), transaction(connection, TENANT):
            record_and_fail(connection)
    assert entries(store) == []


def test_a_row_names_the_caller_and_no_document(store: Postgres) -> None:
    pushed = PushedDocument(id="marker-of-a-person", body=b"a")
    request = IngestRequest(collection="default", profile="default", settings={}, documents=(pushed,))
    operation = Operation(name="ingest", correlation_id="c-1", tenant=TENANT, user="ada", key_id="a1B2c3D4")
    with store.connect() as connection, enter_operation(operation):
        job = Queue(connection, TENANT).enqueue(request).job_id
    (entry,) = entries(store)
    assert (entry["user"], entry["key_id"], entry["correlation_id"]) == ("ada", "a1B2c3D4", "c-1")
    assert entry["resource"] == {"kind": "job", "ids": [str(job)], "count": 1}
    assert entry["detail"] == {"collection": "default", "documents": 1, "locations": 0}
    assert operation.is_audited
    with superuser(store) as connection:
        rows = connection.execute("select content from rag.audit").fetchall()
    assert not [content for (content,) in rows if "ada" in content or "marker" in content]


def test_after_the_erasure_of_a_user_the_chain_is_intact_and_only_a_pseudonym_is_left(store: Postgres) -> None:
    with store.connect() as connection, enter_operation(Operation(name="test", user="ada")):
        add(connection, 2)
    with store.connect() as connection, transaction(connection, TENANT):
        connection.execute("delete from audit_users where tenant = %s and user_id = 'ada'", [TENANT])
    first, second = entries(store)
    assert first["user"] == second["user"] != "ada"
    assert verify(store).broken is None


def test_eight_writers_make_one_chain_without_gaps(store: Postgres) -> None:
    def write(_: int) -> None:
        with store.connect() as connection:
            add(connection, 25)

    with ThreadPoolExecutor(8) as writers:
        list(writers.map(write, range(8)))
    assert [entry["n"] for entry in entries(store)] == list(range(1, 201))
    assert verify(store).broken is None


def test_tenants_have_chains_of_their_own(store: Postgres) -> None:
    with store.connect() as connection:
        add(connection, 2)
        add(connection, 3, STRANGER)
        append_entries(connection, TENANT, [Entry(tenant=TENANT, user="ada", content={"operation": "read"})] * 2, 60)
    assert [entry["n"] for entry in entries(store)] == [1, 2, 3, 4]
    assert [entry["n"] for entry in entries(store, STRANGER)] == [1, 2, 3]


def test_no_tenant_can_write_in_the_chain_of_another(store: Postgres) -> None:
    with (
        store.connect() as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"),
        transaction(connection, STRANGER),
    ):
        record(connection, TENANT, Change(operation="test", kind="number"))


@pytest.mark.parametrize(
    ("statement", "number", "reason"),
    [
        ("update rag.audit set content = replace(content, '\"2\"', '\"7\"') where n = 3", 3, "the row was changed"),
        ("update rag.audit set at = at - interval '1 s' where n = 3", 3, "the row was changed"),
        ("delete from rag.audit where n = 3", 3, "rows 3 to 3 are missing"),
        ("delete from rag.audit where n = 1", 1, "rows 1 to 1 are missing"),
        ("delete from rag.audit where n = 6", 6, "rows 6 to 6 are missing"),
        (
            "insert into rag.audit select tenant, n, at + interval '1 s', content, hash from rag.audit where n = 3",
            3,
            "a row with number 3 was inserted",
        ),
        (
            "insert into rag.audit select tenant, n + 1, at + interval '1 h', content, hash from rag.audit where n = 6",
            7,
            "a row with number 7 was inserted",
        ),
        ("update rag.audit_users set user_id = 'eve'", 1, "its user is not 'eve'"),
    ],
)
def test_whatever_is_changed_in_the_chain_is_found(store: Postgres, statement: str, number: int, reason: str) -> None:
    with store.connect() as connection:
        add(connection, 5)
        Audit(connection, TENANT).verify()
    tamper(store, statement)
    broken = verify(store).broken
    assert broken is not None
    assert (broken.n, broken.reason[: len(reason)]) == (number, reason)


@pytest.mark.parametrize(
    "statement", ["update audit set n = n", "delete from audit", "truncate audit", "truncate {partition}"]
)
def test_the_audit_is_append_only_for_every_role(store: Postgres, statement: str) -> None:
    partition = f"audit_{datetime.now(UTC):%Y_%m}"
    statement = statement.format(partition=partition)
    with store.connect() as connection:
        add(connection, 1)
    for connect in (store.connect, lambda: store.connect("rag_worker")):
        with connect() as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(statement.encode())
    connections: list[Callable[[], Any]] = [lambda: store.connect("rag_owner"), lambda: superuser(store)]
    for connect in connections:
        with (
            connect() as connection,
            pytest.raises(psycopg.errors.RaiseException, match="cannot be changed"),
            transaction(connection, TENANT),
        ):
            connection.execute(statement.encode())


@pytest.mark.parametrize("statement", ["select drop_audit_months(now())", "select create_audit_month(now())"])
@pytest.mark.parametrize("role", ["rag_app", "rag_worker"])
def test_only_the_owner_can_create_and_drop_months(store: Postgres, role: Role, statement: str) -> None:
    with store.connect(role) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(statement.encode())


def test_the_months_are_partitions_that_are_made_when_they_begin(store: Postgres) -> None:
    with store.connect() as connection:
        add(connection, 1)
    next_year = datetime.now(UTC) + timedelta(days=370)
    with superuser(store) as connection:
        connection.execute("update rag.audit_heads set at = %s", [next_year])
    with store.connect() as connection:
        add(connection, 2)
    with superuser(store) as connection:
        statement = f"select count(*) from rag.audit_{next_year:%Y_%m}"  # noqa: S608
        assert connection.execute(statement.encode()).fetchone() == (2,)
    assert verify(store).broken is None


def test_after_retention_the_chain_starts_at_the_row_that_was_dropped_last(store: Postgres) -> None:
    with store.connect() as connection:
        add(connection, 3)
        add(connection, 1, STRANGER)
    later = datetime.now(UTC) + timedelta(days=70)
    with superuser(store) as connection:
        connection.execute("update rag.audit_heads set at = %s", [later])
    with store.connect() as connection:
        add(connection, 2)
    with store.connect("rag_owner") as connection:
        dropped = connection.execute("select drop_audit_months(%s)", [later]).fetchall()
    assert f"audit_{datetime.now(UTC):%Y_%m}" in {name for (name,) in dropped}
    assert [entry["n"] for entry in entries(store)] == [4, 5]
    result = verify(store)
    assert (result.start.n, result.broken) == (3, None)
    assert verify(store, STRANGER).broken is None
    assert entries(store, STRANGER)[0]["n"] == 2  # of the verification before


def test_no_month_is_dropped_during_a_check(store: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    with store.connect() as connection:
        add(connection, 2)
    read_ends = Audit._read_ends

    def drop_before(audit: Audit) -> Any:
        with store.connect("rag_owner") as owner, suppress(psycopg.errors.LockNotAvailable):
            owner.execute("set lock_timeout = '50ms'")
            owner.execute("select drop_audit_months(now() + interval '70 days')")
        return read_ends(audit)

    with monkeypatch.context() as patched:
        patched.setattr(Audit, "_read_ends", drop_before)
        result = verify(store)
    assert (result.start.n, result.end.n, result.broken) == (0, 3, None)


def test_a_month_is_dropped_after_a_dump_has_ended_and_not_waited_for(store: Postgres) -> None:
    with store.connect() as connection:
        add(connection, 2)
    with superuser(store) as dump, dump.transaction():
        dump.execute("lock table rag.audit in access share mode")
        assert keep_audit_months(store, -70) == []
    assert f"audit_{datetime.now(UTC):%Y_%m}" in keep_audit_months(store, -70)
    assert verify(store).broken is None


def test_an_exported_file_can_be_checked_without_the_store(store: Postgres) -> None:
    file = io.StringIO()
    with store.connect() as connection:
        add(connection, 4)
        assert Audit(connection, TENANT).export(file) == 5
        end = Audit(connection, TENANT).verify().end
    result = verify_export(io.StringIO(file.getvalue()))
    assert (result.start.n, result.end.n, result.broken) == (0, 5, None)
    assert end.n == 6
    lines = file.getvalue().splitlines(keepends=True)
    assert json.loads(lines[1])["previous"] == json.loads(lines[0])["hash"]
    changed = "".join([*lines[:2], lines[2].replace('\\"2\\"', '\\"7\\"'), *lines[3:]])
    broken = verify_export(io.StringIO(changed)).broken
    assert broken is not None
    assert broken.n == 3


def test_the_list_can_be_filtered_and_is_recorded(store: Postgres) -> None:
    with store.connect() as connection:
        with enter_operation(Operation(name="test", user="ada")):
            add(connection, 2)
        Keys(connection, TENANT).create({"admin"})
        audit = Audit(connection, TENANT)
        assert [entry["n"] for entry in audit.list_entries(user="ada")] == [2, 1]
        assert [entry["n"] for entry in audit.list_entries(operation="keys.create")] == [3]
        assert audit.list_entries(since=datetime.now(UTC) + timedelta(hours=1)) == []
        assert [entry["operation"] for entry in audit.list_entries(limit=2)] == ["audit.list", "audit.list"]


def test_a_row_of_thousands_of_documents_has_the_ids_of_some_and_the_count_of_all(store: Postgres) -> None:
    with store.connect() as connection, transaction(connection, TENANT):
        change = Change(operation="documents.delete", kind="document", ids=[uuid4() for _ in range(1_500)])
        record(connection, TENANT, change)
    (entry,) = entries(store)
    assert (len(entry["resource"]["ids"]), entry["resource"]["count"]) == (1_000, 1_500)


def test_a_chain_that_was_computed_again_is_found_by_the_end_of_an_earlier_check(store: Postgres) -> None:
    with store.connect() as connection:
        add(connection, 3)
    earlier_end = verify(store).end
    with superuser(store) as connection:
        connection.execute("set session_replication_role = replica")
        connection.execute("delete from rag.audit")
        connection.execute("delete from rag.audit_heads")
    with store.connect() as connection:
        add(connection, 7)
        audit = Audit(connection, TENANT)
        assert audit.verify().broken is None
        broken = audit.verify(earlier_end).broken
    assert broken is not None
    assert (broken.n, broken.reason[:36]) == (4, "it is not the row of the earlier che")


def test_the_end_of_an_earlier_check_is_in_the_chain_until_retention_drops_it(store: Postgres) -> None:
    with store.connect() as connection:
        add(connection, 3)
        audit = Audit(connection, TENANT)
        earlier_end = audit.verify().end
        assert audit.verify(earlier_end).broken is None
        add(connection, 1)
    with store.connect("rag_owner") as owner:
        owner.execute("select drop_audit_months(now() + interval '70 days')")
    with store.connect() as connection, pytest.raises(UsageError, match="row 4 cannot be checked: rows up to 6 were"):
        Audit(connection, TENANT).verify(earlier_end)
