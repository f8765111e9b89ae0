"""`rag keys`: what is printed, stored and refused."""

from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import pytest
from commands import Rag, rag_in_process
from documents import ROOT, Reader
from rich.console import Console

from rag_cli.serve import print_advice
from rag_core.settings import load_settings
from rag_core.storage.keys import KeyParts
from rag_core.storage.postgres import Postgres

pytestmark = pytest.mark.postgres

READER = ("--role", "reader")


@pytest.fixture
def rag(store: Postgres, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Rag:
    monkeypatch.setenv("RAG_STORE__URL", store.dsn)
    return rag_in_process(capfd)


def test_a_key_is_printed_once_and_listed_without_its_secret(rag: Rag) -> None:
    created = rag("keys", "create", *READER, "--group", "staff", "--name", "page", "--expires", "90d", "--json").json
    parts = KeyParts.parse(created["key"])
    assert parts is not None
    assert created["id"] == parts.id
    listed = rag("keys", "list", "--json")
    assert parts.secret not in listed.out
    (row,) = listed.json
    assert (row["status"], row["user_id"], row["groups"]) == ("active", f"key:{parts.id}", ["staff"])
    assert row["expires_at"][:10] > row["created_at"][:10]


def test_a_rotated_key_keeps_user_scopes_and_groups_and_the_old_one_works_for_the_grace_period(rag: Rag) -> None:
    old = rag("keys", "create", *READER, "--group", "staff", "--user", "ann", "--json").json
    new = rag("keys", "rotate", old["id"], "--grace", "1h", "--json").json
    assert (new["replaces"], new["key"] == old["key"]) == (old["id"], False)
    before, after = rag("keys", "list", "--json").json
    assert [before[field] for field in ("user_id", "scopes", "groups", "name")] == [
        after[field] for field in ("user_id", "scopes", "groups", "name")
    ]
    assert (before["status"], after["status"]) == ("active", "active")
    assert (before["expires_at"] is None, after["expires_at"]) == (False, None)


def test_a_key_that_is_rotated_without_a_grace_period_ends_and_cannot_be_rotated_again(rag: Rag) -> None:
    old = rag("keys", "create", *READER, "--json").json["id"]
    new = rag("keys", "rotate", old, "--expires", "1h", "--json").json["id"]
    rows = rag("keys", "list", "--json").json
    assert {row["id"]: row["status"] for row in rows} == {old: "expired", new: "active"}
    assert {row["user_id"] for row in rows} == {f"key:{old}"}
    refused = rag("keys", "rotate", old)
    assert (refused.code, "is expired: create a new one" in refused.err) == (2, True)


def test_all_keys_of_a_user_are_revoked_together(rag: Rag) -> None:
    ids = sorted(rag("keys", "create", *READER, "--user", "ann", "--json").json["id"] for _ in range(2))
    other = rag("keys", "create", *READER, "--json").json["id"]
    assert rag("keys", "revoke", "--user", "ann", "--json").json == {"revoked": ids}
    assert {row["id"]: row["status"] for row in rag("keys", "list", "--json").json} == {
        **dict.fromkeys(ids, "revoked"),
        other: "active",
    }


def test_the_keys_of_another_tenant_are_neither_listed_nor_changed(rag: Rag) -> None:
    id = rag("keys", "create", *READER, "--json").json["id"]
    other = ("--tenant", "other-tenant")
    assert rag("keys", "list", "--json", *other).json == []
    for command in (("revoke", id), ("rotate", id), ("revoke", "--user", f"key:{id}")):
        refused = rag("keys", *command, *other)
        assert (refused.code, "`rag keys list` lists the keys" in refused.err) == (2, True)
    assert rag("keys", "list", "--json").json[0]["status"] == "active"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "a key needs a scope or a role"),
        (("--role", "owner"), "a role must be one of reader, writer, evaluator, admin, got 'owner'"),
        (("--scope", "read"), "a scope must be one of "),
        ((*READER, "--expires", "90"), "a duration must be a number with s, m, h or d, such as 90d"),
        ((*READER, "--expires", "0d"), "got '0d'"),
        ((*READER, "--expires", "99999d"), "at most 3650d, got '99999d'"),
        ((*READER, "--user", "key:a1B2c3D4"), "the user of a key must not begin with key:"),
        ((*READER, "--name", "a\nb"), "the name of a key must have at most 200 printable characters"),
        ((*READER, "--group", "x" * 201), "the group of a key must have at most 200 printable characters"),
        ((*READER, "--group", ""), "a group of a key must not be empty"),
    ],
)
def test_what_a_key_cannot_be_is_refused(rag: Rag, options: Sequence[str], message: str) -> None:
    refused = rag("keys", "create", *options)
    assert (refused.code, message in refused.err) == (2, True), refused.err
    assert rag("keys", "list", "--json").json == []


def test_the_page_on_authentication_creates_and_lists_a_key(rag: Rag, tmp_path: Path, store: Postgres) -> None:
    Reader(tmp_path, {"RAG_STORE__URL": store.dsn}, {}, rag).follow(
        (ROOT / "docs" / "how-to" / "authentication.md").read_text()
    )


def test_a_revocation_names_either_a_key_or_a_user(rag: Rag) -> None:
    for options in ((), ("a1B2c3D4", "--user", "ann")):
        assert "pass the id of a key, or --user USER" in rag("keys", "revoke", *options).err


def test_a_server_says_how_to_create_a_key_while_no_key_is_active(rag: Rag, store: Postgres) -> None:
    settings = load_settings(environment={}, overrides=[f"store.url={store.dsn}", "auth.mode=keys"])

    def advise() -> str:
        written = StringIO()
        print_advice([settings], "127.0.0.1", Console(file=written, width=200))
        return written.getvalue()

    advice = "tenant default-tenant has no active API key; `rag keys create --tenant default-tenant --role admin`"
    assert advice in advise()
    id = rag("keys", "create", *READER, "--json").json["id"]
    assert advise() == ""
    rag("keys", "revoke", id)
    assert advice in advise()
