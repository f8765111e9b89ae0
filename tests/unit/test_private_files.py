"""Files with secrets that other users of the machine can use are refused."""

from pathlib import Path

import pytest

from rag_core.errors import ConfigError
from rag_core.settings import load_settings


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("store: {url: 'postgresql://me:hunter2@127.0.0.1/rag'}", "store.url"),
        ("store: {url: 'host=/run dbname=rag password=hunter2'}", "store.url"),
        ("profiles: {harbour: {store: {url: 'postgresql://me:hunter2@/rag'}}}", "profiles.harbour.store.url"),
        ("generation: {type: openai, model: m, api_key_env: sk-hunter2hunter2}", "generation.api_key_env"),
        ("encryption: {active: k1, keys: {k1: hunter2}}", "encryption.keys.k1"),
        ("applications: [{args: {set: ['encryption.keys.k1=hunter2']}}]", "applications.args.set"),
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
        "encryption: {active: k1, keys: {k1: 'env:RAG_KEY_1'}}",
        "generation: {type: openai, model: m, api_key_env: LLM_KEY}",
    ],
)
def test_settings_without_a_secret_can_be_read_by_all(tmp_path: Path, text: str) -> None:
    file = tmp_path / "rag.yaml"
    file.write_text(text)
    file.chmod(0o644)
    load_settings(file, environment={})
