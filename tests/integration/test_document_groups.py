"""Groups of documents from rules, access files, requests and programs; and what a change of them costs."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from commands import rag_in_process
from drafts import TENANT
from gateways import build_services, run_with_gateway
from httpx2 import AsyncClient, Response
from targets import superuser
from test_ingest_api import graph, run_with_client, worker
from trees import hashing_settings, ingest, write

from rag_core import open_knowledge_base
from rag_core.errors import ListingError, UsageError
from rag_core.ingestion.report import SyncReport
from rag_core.ingestion.sync import SyncOptions
from rag_core.storage.postgres import Postgres
from rag_core.types import Document
from serve.authentication.caller import Caller

pytestmark = pytest.mark.postgres

FILES = {
    "keys.md": "# Keys\n\nThe keys are rotated every ninety days by the operator on duty.\n",
    "hr/pay.md": "---\ndepartment: payroll\n---\n# Pay\n\nThe pay of the operators is raised in May.\n",
}


def groups_by_file(store: Postgres) -> dict[str, list[str]]:
    """The groups of each document, by file name."""
    with superuser(store) as connection:
        rows = connection.execute("select uri, access from documents").fetchall()
    return {uri.rpartition("/")[2]: groups for uri, groups in rows}


def sync(store: Postgres, folder: Path, *overrides: str, options: SyncOptions | None = None) -> SyncReport:
    return ingest(store, folder, settings=hashing_settings(*overrides), options=options or SyncOptions())


def sync_twice(store: Postgres, folder: Path) -> None:
    """Syncs twice. A file that was written just before its listing is read again at the next sync."""
    sync(store, folder)
    sync(store, folder)


def count_work(report: SyncReport) -> tuple[int, int, int, int]:
    """The changed documents, those that are the same, the embedded texts and the reused chunks."""
    return report.documents["changed"], report.documents["same"], report.chunks["embedded"], report.chunks["reused"]


def reading_seconds(report: SyncReport) -> float:
    return report.seconds["read_parse_split"]


def test_a_new_rule_takes_effect_at_the_next_sync_without_reading(store: Postgres, tmp_path: Path) -> None:
    folder = write(tmp_path, FILES)
    rule = f"metadata.access=[{{uri: '{folder.as_uri()}/hr/**', groups: [hr]}}]"
    sync_twice(store, folder)
    assert groups_by_file(store) == {"keys.md": [], "pay.md": []}

    report = sync(store, folder, rule)
    assert groups_by_file(store) == {"keys.md": [], "pay.md": ["hr"]}
    assert count_work(report) == (1, 1, 0, 1)
    assert reading_seconds(report) == 0
    assert count_work(sync(store, folder, rule)) == (0, 2, 0, 0)

    assert count_work(sync(store, folder)) == (1, 1, 0, 1)
    assert groups_by_file(store) == {"keys.md": [], "pay.md": []}


def test_a_rule_about_metadata_reads_what_is_stored(store: Postgres, tmp_path: Path) -> None:
    folder = write(tmp_path, FILES)
    sync_twice(store, folder)
    report = sync(store, folder, "metadata.access=[{key: department}]", "metadata.access_default=[operators]")
    assert groups_by_file(store) == {"keys.md": ["operators"], "pay.md": ["payroll"]}
    assert (count_work(report), reading_seconds(report)) == ((2, 0, 0, 2), 0)


def test_new_and_changed_documents_are_stored_with_their_groups(store: Postgres, tmp_path: Path) -> None:
    folder, rule = write(tmp_path, FILES), "metadata.access=[{key: department}]"
    sync(store, folder, rule)
    assert groups_by_file(store) == {"keys.md": [], "pay.md": ["payroll"]}
    write(folder, {"hr/pay.md": FILES["hr/pay.md"].replace("payroll", "board")})
    assert count_work(sync(store, folder, rule))[2] == 0
    assert groups_by_file(store)["pay.md"] == ["board"]


def test_an_access_file_takes_effect_without_reading_its_documents(store: Postgres, tmp_path: Path) -> None:
    folder = write(tmp_path, FILES)
    sync_twice(store, folder)
    write(folder, {"hr/.access.yaml": "groups: [hr, board]"})
    report = sync(store, folder)
    assert groups_by_file(store) == {"keys.md": [], "pay.md": ["board", "hr"]}
    assert (count_work(report), reading_seconds(report)) == ((1, 1, 0, 1), 0)

    write(folder, {"hr/.access.yaml": "groups: board"})
    with pytest.raises(ListingError, match="must be `groups"):
        sync(store, folder)
    assert groups_by_file(store)["pay.md"] == ["board", "hr"]


def test_a_file_that_is_read_again_for_nothing_keeps_up_with_its_rules(store: Postgres, tmp_path: Path) -> None:
    folder = write(tmp_path, FILES)
    sync(store, folder)
    sync(store, folder, "metadata.access=[{key: department}]", options=SyncOptions(checksum=True))
    assert groups_by_file(store) == {"keys.md": [], "pay.md": ["payroll"]}


def push(store: Postgres, send: Any) -> Response:
    response: Response = run_with_gateway(graph(store), send, Caller(tenant=TENANT))
    with worker(store):
        run_with_client(store, lambda client: follow(client, response.json()["job_id"]))
    return response


async def follow(client: AsyncClient, job: str) -> None:
    async with client.stream("GET", f"/v1/jobs/{job}/events") as events:
        async for _ in events.aiter_lines():
            pass


@pytest.mark.slow
def test_a_request_names_the_groups_of_each_document(store: Postgres) -> None:
    def documents(access: Sequence[str] | None) -> Any:
        rows = [{"id": "open", "text": "Open text."}, {"id": "pay", "text": "Secret text.", "access": access}]
        return lambda client: client.post("/v1/ingest", json={"documents": rows})

    push(store, documents(["hr", "board", "hr"]))
    assert groups_by_file(store) == {"open": [], "pay": ["board", "hr"]}
    push(store, documents(["audit"]))
    assert groups_by_file(store) == {"open": [], "pay": ["audit"]}
    push(store, documents(None))
    assert groups_by_file(store) == {"open": [], "pay": []}


def test_a_form_names_the_groups_of_all_its_files(store: Postgres) -> None:
    files = [("files", ("a.md", b"# A\n\nA text.", "text/markdown"))]
    push(store, lambda client: client.post("/v1/ingest", data={"access": '["hr"]'}, files=files))
    assert groups_by_file(store) == {"a.md": ["hr"]}


@pytest.mark.parametrize("access", ["hr", [1], [""], ["a\nb"], ["x"] * 101])
def test_groups_of_a_request_are_a_list_of_names(store: Postgres, access: object) -> None:
    body = {"documents": [{"text": "A text.", "access": access}]}
    assert run_with_client(store, lambda client: client.post("/v1/ingest", json=body)).status_code == 422


def test_a_program_names_the_groups_of_a_document_and_searches_as_a_member(store: Postgres) -> None:
    settings = ["embedding.type=hashing"]
    with open_knowledge_base(store.dsn, settings=settings) as knowledge:
        pay = Document(uri="pay", text="The pay of the operators is raised in May.", access=("hr",))
        assert knowledge.add([pay]).documents["completed"] == 1
        assert (len(knowledge.search("pay")), len(knowledge.search("pay", groups=["hr"]))) == (0, 1)
        report = knowledge.add([Document(uri="pay", text=pay.text, access=("board",))])
        assert (report.chunks["embedded"], groups_by_file(store)) == (0, {"pay": ["board"]})
        assert (len(knowledge.search("pay", groups=["hr"])), len(knowledge.search("pay", groups=["board"]))) == (0, 1)


@pytest.mark.parametrize("groups", ["hr", ["h\0r"], ["\udcff"]])
def test_groups_of_a_program_are_a_list_of_names(store: Postgres, groups: Any) -> None:
    with open_knowledge_base(store.dsn, settings=["embedding.type=hashing"]) as knowledge:
        with pytest.raises(UsageError, match="groups must be a list of names"):
            knowledge.search("pay", groups=groups)
        with pytest.raises(UsageError, match="access must be a list of names"):
            knowledge.add([Document(uri="pay", text="The pay is raised.", access=groups)])


def test_the_commands_show_groups_and_ask_as_a_member(
    store: Postgres, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = write(tmp_path, {**FILES, "hr/.access.yaml": "groups: [hr]"})
    rag = rag_in_process(capfd)
    options = ("--store", store.dsn, "--set", "embedding.type=hashing")
    assert rag("ingest", str(folder), *options).code == 0
    listed = json.loads(rag("documents", "list", "--json", *options).out)
    assert [row["groups"] for row in listed] == [["hr"], []]
    assert "hr" in rag("documents", "show", (folder / "hr/pay.md").as_uri(), *options).out
    titles = {}
    for groups in ((), ("--group", "hr")):
        result = json.loads(rag("search", "pay of the operators", "--json", *groups, *options).out)
        titles[groups] = {hit["title"] for hit in result["results"]}
    assert titles == {(): {"Keys"}, ("--group", "hr"): {"Keys", "Pay"}}
    refused = rag("search", "pay", "--group", "hr", "--server", "http://localhost:1")
    assert (refused.code, "--group" in refused.err) == (2, True)


def test_locations_can_be_allowed_to_one_tenant(store: Postgres) -> None:
    tenant_setting = f'ingestion.allowed_locations_by_tenant={{"{TENANT}": ["s3://harbour/docs"]}}'
    shared_setting = 'ingestion.allowed_locations=["s3://shared"]'

    def status(tenant: str, location: str) -> int:
        services = build_services(
            hashing_settings(f"tenant={TENANT}", f"store.url={store.dsn}", tenant_setting, shared_setting)
        )
        body = {"source": {"type": "files", "locations": [location]}}
        response: Response = run_with_gateway(
            services, lambda client: client.post("/v1/ingest", json=body), Caller(tenant=tenant)
        )
        return response.status_code

    assert status(TENANT, "s3://harbour/docs/a.md") == status(TENANT, "s3://shared/a.md") == 202
    assert status("another-tenant", "s3://shared/a.md") == 202
    assert status("another-tenant", "s3://harbour/docs/a.md") == 403
