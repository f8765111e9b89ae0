"""`rag audit` at the command line."""

import json
import os
import pwd
import stat
from pathlib import Path
from typing import Any

import pytest
from commands import Rag, rag_in_process
from documents import ROOT, Reader
from targets import superuser

from rag_core.storage.postgres import Postgres

pytestmark = pytest.mark.postgres


@pytest.fixture
def rag(store: Postgres, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Rag:
    monkeypatch.setenv("RAG_STORE__URL", store.dsn)
    return rag_in_process(capfd)


def test_a_change_at_the_command_line_names_the_operating_systems_user(
    rag: Rag, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "mallory")
    user = f"operator:{pwd.getpwuid(os.getuid()).pw_name}"
    rag("keys", "create", "--role", "reader")
    (entry,) = rag("audit", "list", "--json", "--operation", "keys.create").json
    assert (entry["user"], entry["resource"]["kind"]) == (user, "key")
    listing = rag("audit", "list", "--user", user, "--limit", 1)
    assert "audit.list" in listing.out
    assert "pass --limit 2" in listing.err
    assert rag("audit", "list", "--since", "2100-01-01").err == "no matching rows\n"


def test_verify_fails_and_names_the_row_that_was_changed(rag: Rag, store: Postgres) -> None:
    for _ in range(2):
        rag("keys", "create", "--role", "reader")
    intact = rag("audit", "verify", "--json")
    assert (intact.code, intact.json["broken"], intact.json["end"]["n"]) == (0, None, 3)
    with superuser(store) as connection:
        connection.execute("set session_replication_role = replica")
        connection.execute("update rag.audit set content = replace(content, 'create', 'revoke') where n = 2")
    broken = rag("audit", "verify")
    assert broken.code == 1
    assert "broken at row 2: the row was changed" in broken.err


def test_an_exported_file_is_private_and_can_be_verified(rag: Rag, tmp_path: Path) -> None:
    rag("keys", "create", "--role", "reader")
    file = tmp_path / "audit.jsonl"
    file.touch(mode=0o644)
    assert rag("audit", "export", "--out", file, "--json").json["rows"] == 2
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert rag("audit", "verify", "--file", file, "--json").json["end"]["n"] == 2
    lines: list[Any] = [json.loads(line) for line in file.read_text().splitlines()]
    lines[0]["content"] = lines[0]["content"].replace("create", "revoke")
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert rag("audit", "verify", "--file", file).code == 1
    file.write_text("no row\n")
    refused = rag("audit", "verify", "--file", file)
    assert (refused.code, refused.err) == (2, "error: not a row of `rag audit export`: 'no row\\n'\n")
    for damaged in (b"\xff\n", json.dumps({**lines[0], "n": "1"}).encode(), json.dumps({**lines[0], "at": 1}).encode()):
        file.write_bytes(damaged)
        assert rag("audit", "verify", "--file", file).code == 2


def test_an_export_that_cannot_reach_the_store_keeps_the_earlier_file(rag: Rag, tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    file.write_text("earlier")
    assert rag("audit", "export", "--out", file, "--store", "host=127.0.0.1 port=1").code != 0
    assert file.read_text() == "earlier"


def test_the_page_on_the_audit_can_be_followed(rag: Rag, store: Postgres, tmp_path: Path) -> None:
    for _ in range(2):
        rag("keys", "create", "--role", "reader")
    last_row = rag("audit", "verify", "--json").json["end"]
    replacements = {"12:9f86d081…": f"{last_row['n']}:{last_row['hash']}"}
    reader = Reader(tmp_path, {"RAG_STORE__URL": store.dsn}, replacements, rag)
    reader.follow((ROOT / "docs" / "how-to" / "audit.md").read_text())
    assert rag("audit", "verify", "--known", f"1:{last_row['hash']}").code == 1
    assert rag("audit", "verify", "--known", "one").code == 2
