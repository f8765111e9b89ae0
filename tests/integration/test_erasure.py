"""What is erased with a user, a session, old rows or a tenant, and what stays."""

import json
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from commands import rag_in_process
from drafts import TENANT, draft, weigh_draft
from fakes.conversations import converse
from fakes.replies import stored_reply
from targets import begin, end, publish, superuser, write
from test_maintenance import EAGER, indexes, notes
from test_tenants import STRANGER, fill
from trees import violations

from rag_core.answering.split import hash_conversation
from rag_core.errors import FencedError, StoreError
from rag_core.storage.audit import Change, current_user, record
from rag_core.storage.audit_reading import Audit
from rag_core.storage.conversation_list import ConversationList
from rag_core.storage.conversation_references import format_reference
from rag_core.storage.erasure import ErasureScope, TableCount, erase
from rag_core.storage.erasure_rules import EVIDENCE, PARTLY_KEPT
from rag_core.storage.exposures import Exposure, Exposures
from rag_core.storage.ledger import Ledger
from rag_core.storage.postgres import Postgres, transaction
from rag_core.storage.queue import IngestRequest, PushedDocument, Queue, build_retry_request
from rag_core.storage.replies import Feedback, Replies
from rag_core.telemetry.operation import Operation, enter_operation
from rag_core.types import Query, conversation_id

pytestmark = pytest.mark.postgres


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps the logs of other programs on this machine out of the tests."""
    monkeypatch.setenv("RAG_HOME", str(tmp_path))
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / "ray"))


def purge(store: Postgres, tenant: str = TENANT, dry_run: bool = False, **scope: object) -> dict[str, TableCount]:
    erasure_scope = ErasureScope(tenant=tenant, **scope)
    counts = erase(store, erasure_scope, lambda session: hash_conversation(tenant, session), dry_run=dry_run)
    return {count.table: count for count in counts if count.table not in EVIDENCE | PARTLY_KEPT}


def test_of_a_tenant_nothing_is_left_in_any_table(store: Postgres) -> None:
    fill(store)
    publish(store, draft("file:///b.md", "theirs", tenant=STRANGER), tenant=STRANGER)
    theirs = {table: count.rows for table, count in purge(store, STRANGER, dry_run=True).items()}
    erased = purge(store)
    assert {table for table, count in erased.items() if not count.found} == {"sources"}
    assert {table for table, count in erased.items() if count.left} == set()
    assert {table: count.rows for table, count in purge(store, STRANGER, dry_run=True).items()} == theirs
    assert violations(store) == []


def test_with_a_tenant_its_vector_indexes_go(store: Postgres) -> None:
    publish(store, *notes(25))
    EAGER.run(store, TENANT)
    assert len(indexes(store)) == 1
    purge(store)
    assert indexes(store) == {}


def test_a_dry_run_changes_nothing(store: Postgres) -> None:
    fill(store)
    planned = purge(store, dry_run=True)
    assert all(count.found == count.rows == count.left for count in planned.values())
    assert purge(store, dry_run=True) == planned


def test_a_table_without_a_rule_stops_the_erasure(store: Postgres) -> None:
    fill(store)
    with superuser(store) as connection:
        connection.execute("create table rag.new_rows (tenant text); grant select on rag.new_rows to rag_worker")
    with pytest.raises(StoreError, match="no rule for new_rows"):
        purge(store)
    with superuser(store) as connection:
        connection.execute("drop table rag.new_rows")
    assert purge(store, dry_run=True)["documents"].rows > 0


def push(store: Postgres, user: str, id: str, *texts: str) -> None:
    """Publishes a document in a job that the user requested."""
    document = draft(f"push:///{id}", *texts)
    target = begin(store, [document])
    with superuser(store) as connection:
        connection.execute("update rag.jobs set user_id = %s where id = %s", [user, target.job])
    write(target, [weigh_draft(document)])
    end(target)


def test_a_user_takes_documents_jobs_and_conversations_along(store: Postgres) -> None:
    push(store, "ann", "note", "zanzibar one", "two")
    push(store, "bob", "memo", "kilimanjaro two")
    for user in ("ann", "bob"):
        query = Query(text=f"what does {user} want?", tenant=TENANT, session_id=f"s-{user}", user_id=user)
        converse(store, query)
        with store.connect() as connection:
            replies = Replies(connection, TENANT)
            replies.add([stored_reply(f"ans_{user}", conversation_id=conversation_id(query))], timeout=60)
            replies.add_feedback(Feedback(answer_id=f"ans_{user}", comment=f"by {user}"))
            request = IngestRequest(
                collection="default",
                profile="default",
                settings={},
                documents=(PushedDocument(id=f"new-{user}", body=b"later"),),
                user_id=user,
            )
            Queue(connection, TENANT).enqueue(request)
    erased = purge(store, user="ann")
    assert {table: count.found for table, count in erased.items() if count.found} | {"lexical_postings": 0} == {
        "conversations": 1,
        "messages": 2,
        "participants": 1,
        "replies": 1,
        "feedback": 1,
        "jobs": 2,
        "job_items": 1,
        "job_events": 7,
        "pushed_documents": 1,
        "documents": 1,
        "document_texts": 1,
        "document_values": 5,
        "chunks": 2,
        "vectors": 2,
        "lexical_documents": 1,
        "lexical_segments": 1,
        "lexical_postings": 0,
    }
    assert not any(count.left for count in erased.values())
    assert violations(store) == []
    with superuser(store) as connection:
        terms = {term for (term,) in connection.execute("select term from rag.lexical_postings")}
        assert "zanzibar" not in terms
        assert "kilimanjaro" in terms
        assert connection.execute("select user_id from rag.jobs order by run").fetchall() == [("bob",), ("bob",)]
        assert connection.execute("select uri, user_id from rag.documents").fetchall() == [("push:///memo", "bob")]


def test_a_document_belongs_to_the_user_who_pushed_it_last(store: Postgres) -> None:
    push(store, "ann", "note", "zanzibar")
    push(store, "bob", "note", "kilimanjaro")
    erased = purge(store, user="ann")
    assert (erased["documents"].found, erased["lexical_documents"].found) == (0, 1)
    with superuser(store) as connection:
        assert connection.execute("select term from rag.lexical_postings").fetchall() == [("kilimanjaro",)]
    assert violations(store) == []


def test_the_job_of_another_user_keeps_its_counts_without_the_name_of_the_document(store: Postgres) -> None:
    push(store, "bob", "zanzibar", "one")
    push(store, "ann", "zanzibar", "two")
    with superuser(store) as connection:
        connection.execute("""insert into rag.job_events (tenant, job_id, seq, stage, status, detail)
            select i.tenant, job_id, 99, 'document', 'failed',
              jsonb_build_object('document_id', document_id, 'uri', uri)
            from rag.job_items i join rag.jobs j on j.tenant = i.tenant and j.id = i.job_id where user_id = 'bob'""")
    erased = purge(store, user="ann")
    assert not any(count.left for count in erased.values())
    with superuser(store) as connection:
        assert connection.execute("select uri, status from rag.job_items").fetchall() == [("", "completed")]
        details = connection.execute("select detail ->> 'uri' from rag.job_events where seq = 99").fetchall()
    assert details == [("",)]


def test_a_job_that_runs_is_cancelled_and_its_worker_writes_nothing_more(store: Postgres) -> None:
    publish(store, draft("file:///a.md", "one"))
    late = draft("file:///late.md", "two")
    target = begin(store, [late])
    assert purge(store)["jobs"].found == 2
    with pytest.raises(FencedError):
        write(replace(target, store_timeout=0), [late])
    assert not any(count.rows for count in purge(store, dry_run=True).values())


def test_a_login_without_roles_erases_what_it_owns(store: Postgres) -> None:
    push(store, "ann", "note", "one")
    with superuser(store) as connection:
        connection.execute("create role purger login in role rag_owner")
        connection.execute("alter role purger inherit")
    try:
        erased = purge(Postgres(store.dsn.replace("user=postgres", "user=purger")), user="ann")
    finally:
        with superuser(store) as connection:
            connection.execute("drop role purger")
    assert (erased["documents"].found, sum(count.left for count in erased.values())) == (1, 0)


def test_the_retry_of_a_job_belongs_to_the_same_user(store: Postgres) -> None:
    document = PushedDocument(id="a", body=b"later")
    request = IngestRequest(collection="default", profile="default", settings={}, documents=(document,), user_id="ann")
    with store.connect() as connection:
        job = Queue(connection, TENANT).enqueue(request).job_id
        Ledger(connection, TENANT).end(job, "failed", "a test")
    assert build_retry_request(store, TENANT, job).user_id == "ann"


def test_a_session_leaves_the_others_of_the_user(store: Postgres) -> None:
    for session in ("one", "two"):
        converse(store, Query(text="who?", tenant=TENANT, session_id=session, user_id="ann"))
    purge(store, session="one")
    with superuser(store) as connection:
        assert connection.execute("select session_id from rag.conversations").fetchall() == [("two",)]
        assert connection.execute("select count(*) from rag.messages").fetchone() == (2,)


def test_a_conversation_can_be_named_by_its_reference(store: Postgres) -> None:
    query = Query(text="who?", tenant=TENANT, session_id="one", user_id="ann")
    converse(store, query, replace(query, user_id="bob"))
    reference = format_reference(conversation_id(query))
    assert purge(store, session=reference, user="bob")["conversations"].found == 0
    erased = purge(store, session=reference)
    assert (erased["conversations"].found, erased["messages"].found) == (1, 2)
    with superuser(store) as connection:
        assert connection.execute("select user_id from rag.conversations").fetchall() == [("bob",)]


def test_a_session_of_a_user_leaves_that_of_others_with_its_part_in_experiments(store: Postgres) -> None:
    mine = Query(text="who?", tenant=TENANT, session_id="one", user_id="ann")
    converse(store, mine, replace(mine, user_id="bob", groups=("staff",)))
    hash = hash_conversation(TENANT, "one")
    with store.connect() as connection:
        exposure = Exposure(experiment="e", variant="control", bucket=1, conversation=hash, tenant=TENANT)
        Exposures(connection, TENANT).add({"failed": exposure})
    assert purge(store, user="ann", session="one")["exposures"].found == 0
    with superuser(store) as connection:
        assert connection.execute("select user_id from rag.conversations").fetchall() == [("bob",)]
    assert purge(store, session="one")["exposures"].found == 1


def test_an_invited_user_takes_the_conversation_along_only_after_writing_in_it(store: Postgres) -> None:
    query = Query(text="who?", tenant=TENANT, session_id="one", user_id="ann")
    converse(store, query)
    with store.connect() as connection:
        id = ConversationList(connection, TENANT, (), "ann").invite("one", ["bob", "eve"])
    converse(store, replace(query, text="and she?", session_id=format_reference(id), user_id="eve"))
    erased = purge(store, user="bob")
    assert (erased["conversations"].found, erased["participants"].found, erased["participants"].left) == (0, 1, 0)
    with superuser(store) as connection:
        names = "select name from rag.participants order by name"
        assert connection.execute(names).fetchall() == [("ann",), ("eve",)]
    erased = purge(store, user="eve")
    assert (erased["conversations"].found, erased["messages"].found, erased["participants"].found) == (1, 4, 2)


def test_a_user_whose_invitation_is_withdrawn_leaves_no_name_unless_there_are_messages(store: Postgres) -> None:
    query = Query(text="who?", tenant=TENANT, session_id="one", user_id="ann")
    converse(store, query)
    with store.connect() as connection:
        conversations = ConversationList(connection, TENANT, (), "ann")
        id = conversations.invite("one", ["bob", "eve"])
        converse(store, replace(query, session_id=format_reference(id), user_id="eve"))
        conversations.invite("one", [])
    with superuser(store) as connection:
        rows = connection.execute("select name, is_invited, has_written from rag.participants order by name").fetchall()
    assert rows == [("ann", False, True), ("eve", False, True)]


def test_with_a_conversation_the_failed_answers_of_its_participants_leave_experiments(store: Postgres) -> None:
    query = Query(text="who?", tenant=TENANT, session_id="one", user_id="ann")
    converse(store, query)
    hash = hash_conversation(TENANT, format_reference(conversation_id(query)))
    exposure = Exposure(experiment="e", variant="control", bucket=1, conversation=hash, tenant=TENANT)
    with store.connect() as connection:
        Exposures(connection, TENANT).add({"failed": exposure})
    erased = purge(store, user="ann")
    assert (erased["exposures"].found, erased["exposures"].left) == (1, 0)


USERS = "select user_id from rag.audit_users order by user_id"


def record_feedback(store: Postgres, user: str) -> None:
    with (
        enter_operation(Operation(name="feedback", user=user)),
        store.connect() as connection,
        transaction(connection, TENANT),
    ):
        record(connection, TENANT, Change(operation="feedback.give", kind="answer", ids=["ans_1"]))


def test_a_purge_has_a_row_in_the_audit_that_does_not_name_the_user(store: Postgres) -> None:
    push(store, "ann", "note", "zanzibar")
    for user in ("ann", "bob"):
        record_feedback(store, user)
    purge(store, user="ann", dry_run=True)
    report = erase(store, ErasureScope(tenant=TENANT, user="ann"), str)
    assert sum(count.left for count in report) == 0
    with superuser(store) as connection:
        assert connection.execute(USERS).fetchall() == [("bob",), (current_user(),)]
    with store.connect() as connection:
        audit = Audit(connection, TENANT)
        rows = audit.list_entries()
        (entry,) = [row for row in rows if row["operation"] == "purge"]
        assert audit.verify().broken is None
    assert (entry["user"], entry["resource"]) == (current_user(), {"ids": [], "kind": "user", "count": 0})
    assert (entry["detail"]["rows"]["documents"], entry["detail"]["rows"]["audit_users"]) == (1, 1)
    assert "ann" not in str(entry)
    bob, pseudonym = [row["user"] for row in rows if row["operation"] == "feedback.give"]
    assert (bob, len(pseudonym)) == ("bob", 32)


def test_after_a_tenant_only_the_user_who_erased_it_is_known(store: Postgres) -> None:
    record_feedback(store, "ann")
    report = {count.table: count for count in erase(store, ErasureScope(tenant=TENANT), str)}
    assert (report["audit_users"].found, report["audit_users"].left) == (1, 0)
    with superuser(store) as connection:
        assert connection.execute(USERS).fetchall() == [(current_user(),)]
    again = {count.table: count for count in erase(store, ErasureScope(tenant=TENANT, user=current_user()), str)}
    assert sum(count.left for count in again.values()) == 0


def test_old_rows_are_erased_except_the_last_job_of_a_collection(store: Postgres) -> None:
    fill(store)
    publish(store, draft("file:///b.md", "new"))
    with superuser(store) as connection:
        connection.execute("update rag.conversations set last_activity_at = now() - interval '9 days'")
        connection.execute("update rag.replies set created_at = now() - interval '9 days'")
        connection.execute("""update rag.jobs set finished_at = now() - interval '9 days' where status = 'completed'""")
    assert purge(store, days=10, dry_run=True)["jobs"].found == 0
    erased = purge(store, days=8)
    tables = {table for table, count in erased.items() if count.found}
    assert tables == {"conversations", "messages", "participants", "replies", "feedback", "exposures", "jobs"} | {
        "job_items",
        "job_events",
    }
    assert erased["jobs"].found == 1
    assert violations(store) == []


def test_the_role_of_requests_cannot_erase_rows_of_another_tenant(store: Postgres) -> None:
    fill(store)
    with store.connect("rag_app") as connection, transaction(connection, STRANGER):
        for table in purge(store, dry_run=True):
            statement = f"delete from rag.{table} where tenant = %s"  # noqa: S608 - names of tables
            assert connection.execute(statement.encode(), [TENANT]).rowcount == 0
    with store.connect("rag_app") as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("truncate rag.documents")


def test_the_command_reports_every_table_and_that_nothing_is_left(
    store: Postgres, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run = tmp_path / "runs" / "run"
    for folder in (run / "nested", run):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "report.json").write_text(
            json.dumps({"dataset": "d", "split": "test", "profile": "default", "tenant": TENANT})
        )
    rag = rag_in_process(capfd)
    fill(store)
    at = ("--store", store.dsn, "--tenant", TENANT, "--json")
    assert rag("purge", *at).code == 2
    planned = rag("purge", "--dry-run", *at)
    assert planned.code == 0
    purged = rag("purge", "--yes", *at)
    assert (purged.code, purged.json["left"]) == (0, 0)
    assert [table["found"] for table in purged.json["tables"]] == [table["left"] for table in planned.json["tables"]]
    assert [file["left"] for file in purged.json["files"]] == [0, 0]
    assert not run.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name what to erase"),
        (["--user", "a", "--older-than", "9d"], "cannot be combined"),
        (["--older-than", "90"], "such as 90d"),
        (["--tenant", TENANT, "--older-than", "", "--yes"], "such as 90d"),
        (["--tenant", TENANT, "--user", "", "--yes"], "must not be empty"),
        (["--tenant", TENANT, "--session", "", "--yes"], "must not be empty"),
        (["--user", "a"], "Pass --yes"),
    ],
)
def test_a_purge_needs_one_scope_and_a_confirmation(
    capfd: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    ran = rag_in_process(capfd)("purge", *arguments)
    assert ran.code == 2
    assert message in ran.err
