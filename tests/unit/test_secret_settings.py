"""Every secret of the settings, found by their schema: none is shown, wherever it comes from."""

import json
import pickle
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from commands import Rag, rag_in_process

from jobs.provenance import hide_secrets
from rag_core.config import HIDE_SECRETS, Settings, list_secrets
from rag_core.errors import ConfigError
from rag_core.settings import load_settings
from rag_core.storage.postgres import Postgres
from rag_core.wiring.ingestion import record_settings
from serve.gateway_settings import SettingsSource

MARKER = "marker3f9a77"
SECRETS = {
    "store.url": "store.url={}",
    "encryption.keys.*": "encryption={{keys: {{k1: {}}}, active: k1}}",
    "generation.openai.api_key": "generation={{type: openai, model: m, api_key: {}}}",
    "guard.judge.llm.api_key": "guard.judge={{type: llm, model: m, api_key: {}}}",
    "conversation.understanding.llm.api_key": "conversation.understanding={{type: llm, model: m, api_key: {}}}",
    "retrieval.reranked.reranker.llm.api_key": (
        "retrieval={{type: reranked, retriever: {{type: dense}}, reranker: {{type: llm, model: m, api_key: {}}}}}"
    ),
}
"""An override for each secret. A section with a `type` has its type in the path."""

EXCEPTIONS = {"api_key_env"}
"""Settings that only name the place of a secret."""
SOUNDS_SECRET = re.compile(r"(?:password|secret|token|key|keys|credentials?|dsn|cookie)s?$|_key_|api_key")


def walk(
    node: Mapping[str, Any], definitions: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """Yields each setting of the schema. Retrievers within retrievers are left out."""
    if reference := node.get("$ref"):
        if path.count("retriever") + path.count("retrievers") < 1:
            yield from walk(definitions[reference.rpartition("/")[2]], definitions, path)
        return
    yield path, node
    for name, reference in node.get("discriminator", {}).get("mapping", {}).items():
        yield from walk({"$ref": reference}, definitions, (*path, name))
    for alternative in node.get("anyOf", ()):
        yield from walk(alternative, definitions, path)
    for name, value in node.get("properties", {}).items():
        yield from walk(value, definitions, (*path, name))
    if isinstance(values := node.get("additionalProperties"), Mapping):
        yield from walk(values, definitions, (*path, "*"))


SCHEMA = Settings.model_json_schema()
SETTINGS = [(".".join(path), node) for path, node in walk(SCHEMA, SCHEMA["$defs"]) if path]


def test_every_secret_has_an_example() -> None:
    assert {name for name, node in SETTINGS if node.get("writeOnly")} == set(SECRETS)


def test_every_setting_that_sounds_secret_is_one() -> None:
    texts = [(name, node) for name, node in SETTINGS if node.get("type") == "string"]
    sound = {name for name, _ in texts if SOUNDS_SECRET.search(name.rpartition(".")[2])}
    assert {name for name in sound if name.rpartition(".")[2] not in EXCEPTIONS} <= set(SECRETS)


def load(name: str, value: str) -> Settings:
    return load_settings(overrides=[SECRETS[name].format(value)], environment={})


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_in_place_is_in_no_representation_and_no_dump_for_others(name: str) -> None:
    settings = load(name, f"'host=h password={MARKER}'" if name == "store.url" else MARKER)
    assert MARKER in settings.model_dump_json()
    for text in (
        repr(settings),
        str(settings),
        settings.model_dump_json(context=HIDE_SECRETS),
        json.dumps(record_settings(settings)),
        settings.pipeline_version,
    ):
        assert MARKER not in text


@pytest.mark.parametrize("name", SECRETS)
def test_a_reference_is_kept_and_the_secret_is_nowhere(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAG_TEST_SECRET", MARKER)
    settings = load(name, "env:RAG_TEST_SECRET")
    assert "env:RAG_TEST_SECRET" in settings.model_dump_json(context=HIDE_SECRETS)
    assert MARKER.encode() not in pickle.dumps(settings)


@pytest.mark.parametrize("name", SECRETS)
def test_every_secret_is_listed_by_its_name(name: str) -> None:
    types = {"openai", "llm", "reranked"}
    setting = ".".join(part for part in name.replace("*", "k1").split(".") if part not in types)
    assert (setting, "env:RAG_TEST_SECRET") in list(list_secrets(load(name, "env:RAG_TEST_SECRET")))


@pytest.mark.parametrize("value", [f"[{MARKER}]", f"{{a: {MARKER}}}", f"'env:{MARKER}-'", f"'vault:{MARKER}'"])
@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_of_a_wrong_form_is_refused_and_not_shown(name: str, value: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(name, value)
    assert MARKER not in str(refused.value)
    assert name.partition(".")[0] in str(refused.value)


@pytest.mark.parametrize("name", SECRETS)
def test_config_show_hides_secrets_and_shows_references(
    name: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rag: Rag = rag_in_process(capfd)
    value = f"'postgresql://me:{MARKER}@host/rag'" if name == "store.url" else MARKER
    for arguments in (("--json",), ()):
        output = rag("config", "show", *arguments, "--set", SECRETS[name].format(value))
        assert (output.code, MARKER in output.out + output.err) == (0, False)
        assert name == "encryption.keys.*" or "warning: others can read the secret in" in output.err  # see below
    output = rag("config", "show", "--json", "--set", SECRETS[name].format("env:RAG_TEST_SECRET"))
    assert "env:RAG_TEST_SECRET" in output.out


@pytest.mark.parametrize(
    "setting", ["encryption={{keys: {{k1: {}}}, active: k1}}", "encryption.keys.k1={}", 'encryption.keys.k1="{}"']
)
def test_a_key_of_the_encryption_on_the_command_line_is_hidden_in_reports(
    setting: str, capfd: pytest.CaptureFixture[str]
) -> None:
    key = b64encode(bytes(range(32))).decode()
    assert key not in hide_secrets(setting.format(key))
    rag: Rag = rag_in_process(capfd)
    output = rag("config", "show", "--set", setting.format(key), "--set", "encryption.active=k1")
    assert (output.code, key in output.out + output.err) == (0, False)
    assert "warning: others can read the secret in" in output.err


def test_a_reference_on_the_command_line_is_not_a_secret(capfd: pytest.CaptureFixture[str]) -> None:
    rag: Rag = rag_in_process(capfd)
    for arguments in (
        ("--store", "env:RAG_DSN"),
        ("--store", "postgresql://me@host/rag"),
        ("--set", "tenant=acme-team"),
    ):
        assert rag("config", "show", "--json", *arguments).err == ""
    assert "warning:" in rag("config", "show", "--json", "--store", f"postgresql://me:{MARKER}@host/rag").err


def test_a_replica_gets_only_the_variables_that_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAG_API_KEY", "RAG_KEY_1", "OTHER__SECRET"):
        monkeypatch.setenv(name, MARKER)
    monkeypatch.setenv("RAG_STORE__URL", "env:RAG_KEY_1")
    source = SettingsSource().model_dump_json()
    assert "env:RAG_KEY_1" in source
    assert MARKER not in source


def test_an_opened_store_does_not_show_its_dsn() -> None:
    assert MARKER not in repr(Postgres(f"host=h password={MARKER}"))
