"""References to secrets in the settings."""

import json
import os
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

import pytest

from rag_core.errors import ConfigError
from rag_core.secret_references import (
    SecretText,
    _fetch_from_vault,
    check_permissions,
    check_reference,
    hide_secret,
    read_secret,
)

SECRET = "marker-3f9a"  # noqa: S105


def complaint(reference: str) -> str:
    with pytest.raises(ConfigError) as raised:
        read_secret(reference, "store.url")
    assert raised.value.__cause__ is None
    return str(raised.value)


@pytest.mark.parametrize("text", ["", "plain", "postgresql://me@host/db", "host=h password=env:X", "environment:X"])
def test_other_texts_are_secrets_themselves(text: str) -> None:
    assert read_secret(text, "store.url") == text


def test_a_variable_is_read_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAG_TEST_SECRET", "one")
    assert read_secret("env:RAG_TEST_SECRET", "store.url") == "one"
    monkeypatch.setenv("RAG_TEST_SECRET", "two")
    assert read_secret("env:RAG_TEST_SECRET", "store.url") == "two"


def test_a_missing_variable_is_named_with_its_setting() -> None:
    message = "store.url: cannot read the secret env:RAG_NO_SUCH: the environment variable is not set, or empty"
    assert complaint("env:RAG_NO_SUCH") == message


@pytest.mark.parametrize(
    ("body", "text"), [("a b", "a b"), ("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n"), (" a ", " a ")]
)
def test_a_file_loses_one_newline_at_its_end(tmp_path: Path, body: str, text: str) -> None:
    file = tmp_path / "secret"
    file.write_bytes(body.encode())
    file.chmod(0o600)
    assert read_secret(f"file:{file}", "store.url") == text


@pytest.mark.parametrize("body", [b"", b"\n", b"x" * 65_537, b"\xff" + SECRET.encode()])
def test_a_file_that_is_not_a_secret_is_refused_and_not_shown(tmp_path: Path, body: bytes) -> None:
    file = tmp_path / "secret"
    file.write_bytes(body)
    file.chmod(0o600)
    message = complaint(f"file:{file}")
    assert "the file must" in message
    assert SECRET not in message


def test_a_missing_file_is_named() -> None:
    assert complaint("file:~no-such-user/s").endswith("file:~no-such-user/s: there is no such home folder")
    assert complaint("file:/no/such") == "store.url: cannot read the secret file:/no/such: No such file or directory"


@pytest.mark.parametrize(
    ("is_own", "mode", "allowed"),
    [
        (True, 0o600, True),
        (True, 0o400, True),
        (True, 0o640, False),
        (True, 0o602, False),
        (False, 0o640, True),
        (False, 0o440, True),
        (False, 0o660, False),
        (False, 0o644, False),
    ],
)
def test_only_the_owner_uses_a_file_and_its_group_reads_that_of_another(is_own: bool, mode: int, allowed: bool) -> None:
    owner = os.geteuid() if is_own else os.geteuid() + 1
    status = os.stat_result((0o100000 | mode, 0, 0, 1, owner, 0, 0, 0, 0, 0))
    if allowed:
        check_permissions(status)
        return
    with pytest.raises(ValueError, match=f"other users can use the file .mode {mode:04o}.: run chmod 6[04]0"):
        check_permissions(status)


@pytest.mark.parametrize(
    "text", ["env:", "env:A-B", "file:relative", "vault:secret", "vault:secret/path", "vault:/p#f"]
)
def test_a_reference_has_a_form(text: str) -> None:
    with pytest.raises(ValueError, match=r"a reference must be (env:NAME|file:/path|vault:MOUNT/PATH#FIELD)"):
        check_reference(text)


def test_only_references_are_shown() -> None:
    assert [hide_secret(text) for text in ("", "env:A", SECRET)] == ["", "env:A", "[secret]"]
    assert repr({"key": SecretText(SECRET)}) == "{'key': '[secret]'}"
    assert repr(SecretText("env:A")) == "'env:A'"


class ScriptedVault(BaseHTTPRequestHandler):
    """The part of Vault's HTTP API that reads KV version 2: `GET /v1/MOUNT/data/PATH` with a token."""

    secrets: ClassVar[dict[str, dict[str, object]]] = {"/v1/secret/data/rag/store": {"dsn": SECRET, "count": 3}}
    requests: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.requests.append(self.path)
        if self.headers["X-Vault-Token"] != "root-token":
            status, body = 403, {"errors": ["permission denied"]}
        elif self.path in self.secrets:
            status, body = 200, {"data": {"data": self.secrets[self.path], "metadata": {"version": 1}}}
        else:
            status, body = 404, {"errors": []}
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Prints nothing."""


@pytest.fixture
def vault(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[ScriptedVault]]:
    pytest.importorskip("hvac")
    server = HTTPServer(("127.0.0.1", 0), ScriptedVault)
    thread = Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("VAULT_ADDR", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("VAULT_TOKEN", "root-token")
    ScriptedVault.requests.clear()
    _fetch_from_vault.cache_clear()
    yield ScriptedVault
    _fetch_from_vault.cache_clear()
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_field_of_vault_is_read_once_a_minute(vault: type[ScriptedVault]) -> None:
    assert [read_secret("vault:secret/rag/store#dsn", "store.url") for _ in range(2)] == [SECRET, SECRET]
    assert len(vault.requests) <= 2  # two if a minute ends between the reads


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ("vault:secret/rag/none#dsn", "Vault failed (InvalidPath)"),
        ("vault:secret/rag/store#none", "Vault has no text in this field"),
        ("vault:secret/rag/store#count", "Vault has no text in this field"),
    ],
)
def test_a_secret_that_vault_lacks_is_named(vault: type[ScriptedVault], reference: str, reason: str) -> None:
    assert complaint(reference).startswith(f"store.url: cannot read the secret {reference}: {reason}")


def test_vaults_token_and_address_are_not_shown(vault: type[ScriptedVault], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VAULT_TOKEN", f"token-{SECRET}")
    assert "Vault failed (Forbidden)" in (refused := complaint("vault:secret/rag/store#dsn"))
    monkeypatch.setenv("VAULT_ADDR", f"http://me:{SECRET}@127.0.0.1:1")
    assert "Vault failed (ConnectionError)" in (unreachable := complaint("vault:secret/rag/store#dsn"))
    assert SECRET not in refused + unreachable
