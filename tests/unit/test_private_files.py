"""Files with secrets that other users of the machine can use are refused."""

from pathlib import Path

import pytest

from rag_core.errors import ConfigError
from rag_core.private_files import check_mode
from rag_core.settings import load_settings

FILE = Path("rag.yaml")


@pytest.mark.parametrize(
    ("mode", "owned"), [(0o600, True), (0o400, True), (0o700, True), (0o640, False), (0o440, False)]
)
def test_a_private_file_is_accepted(mode: int, owned: bool) -> None:
    check_mode(FILE, "store.url", mode, owned=owned)


@pytest.mark.parametrize(
    ("mode", "owned"), [(0o644, True), (0o640, True), (0o602, True), (0o604, False), (0o660, False), (0o644, False)]
)
def test_a_file_that_others_can_use_is_refused_with_its_mode(mode: int, owned: bool) -> None:
    with pytest.raises(ConfigError, match=r"run chmod 600 rag\.yaml") as refused:
        check_mode(FILE, "store.url", mode, owned=owned)
    assert f"contains a secret (store.url), and other users can use the file (mode {mode:04o})" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("store: {url: 'postgresql://me:hunter2@127.0.0.1/rag'}", "store.url"),
        ("store: {url: 'host=/run dbname=rag password=hunter2'}", "store.url"),
        ("profiles: {harbour: {store: {url: 'postgresql://me:hunter2@/rag'}}}", "profiles.harbour.store.url"),
        ("generation: {type: openai, model: m, api_key_env: sk-hunter2hunter2}", "generation.api_key_env"),
        ("encryption: {keys: {k1: hunter2AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=}, active: k1}", "encryption.keys.k1"),
    ],
)
def test_settings_with_a_secret_must_be_private(tmp_path: Path, text: str, secret: str) -> None:
    file = tmp_path / "rag.yaml"
    file.write_text(text)
    file.chmod(0o644)
    with pytest.raises(ConfigError, match=r"contains a secret") as refused:
        load_settings(file, environment={})
    assert f"({secret})" in str(refused.value)
    assert "hunter2" not in str(refused.value).replace(str(tmp_path), "")


@pytest.mark.parametrize(
    "text",
    [
        "store: {url: 'env:RAG_DSN'}",
        "store: {url: 'postgresql://me@127.0.0.1/rag'}",
        "generation: {type: openai, model: m, api_key_env: LLM_KEY}",
    ],
)
def test_settings_without_a_secret_can_be_read_by_all(tmp_path: Path, text: str) -> None:
    file = tmp_path / "rag.yaml"
    file.write_text(text)
    file.chmod(0o644)
    load_settings(file, environment={})
