"""The settings of all profiles of a gateway."""

from pathlib import Path

import pytest

from rag_cli.serve import build_source
from rag_cli.terminal.options import GlobalOptions
from rag_core.errors import ConfigError
from rag_core.settings import list_shipped_profiles
from serve.gateway_settings import GatewaySettings, SettingsSource, find_unserved, load_gateway_settings
from serve.shape.reload import reload_gateway_settings

FILE = """
answering: {depth: 30}
profiles:
  mine: {answering: {depth: 20}}
  elsewhere: {store: {url: postgresql://other/rag}}
  broken: {answering: {depth: many}}
"""


def source(tmp_path: Path, text: str = FILE, *overrides: str) -> SettingsSource:
    file = tmp_path / "rag.yaml"
    file.write_text(text)
    return SettingsSource(file=str(file), set=overrides, environment={})


def test_a_gateway_has_the_profiles_of_its_file_and_the_shipped_ones(tmp_path: Path) -> None:
    settings = load_gateway_settings(source(tmp_path))
    assert (settings.own.profile, settings.own.answering.depth) == ("default", 30)
    assert settings.others["mine"].answering.depth == 20
    assert settings.others.keys() >= {*list_shipped_profiles(), "mine"} - {"default"}
    assert "store must be that of profile default" in settings.invalid["elsewhere"]
    assert "answering.depth" in settings.invalid["broken"]


def test_overrides_apply_to_every_profile(tmp_path: Path) -> None:
    settings = load_gateway_settings(source(tmp_path, FILE, "answering.depth=9"))
    assert {settings.own.answering.depth, settings.others["mine"].answering.depth} == {9}


def test_settings_survive_the_way_to_a_replica(tmp_path: Path) -> None:
    settings, layers = load_gateway_settings(source(tmp_path)), source(tmp_path)
    assert GatewaySettings.model_validate_json(settings.model_dump_json(exclude_unset=True)) == settings
    assert SettingsSource.model_validate_json(layers.model_dump_json()) == layers


def test_a_profile_for_a_gpu_is_not_served_without_one(tmp_path: Path) -> None:
    reasons = find_unserved(load_gateway_settings(source(tmp_path)), frozenset())
    assert "embedding.device is cuda" in reasons["gpu"]
    assert "broken" in reasons
    assert reasons.keys().isdisjoint({"mine", "splade"})


def test_a_profile_that_shares_a_deployed_model_does_not_need_it_here(tmp_path: Path) -> None:
    gateway_source = source(tmp_path, "extends: gpu\nprofiles: {mine: {extends: gpu, answering: {depth: 20}}}\n")
    settings = load_gateway_settings(gateway_source.model_copy(update={"profile": "gpu"}))
    deployed = frozenset({"embedder", "reranker", "judge", "generator"})
    assert "mine" in find_unserved(settings, frozenset())
    assert "mine" not in find_unserved(settings, deployed)


def test_a_reload_can_change_other_profiles_in_any_way_and_the_own_one_in_safe_ways(tmp_path: Path) -> None:
    before = source(tmp_path)
    started = load_gateway_settings(before)
    source(tmp_path, "answering: {depth: 12}\nprofiles: {new: {chunking: {tokens: 90}}}\n")
    after = reload_gateway_settings(started, before)
    assert (after.own.answering.depth, after.others["new"].chunking.tokens) == (12, 90)  # type: ignore[union-attr]
    assert "mine" not in after.others
    source(tmp_path, "chunking: {tokens: 90}\n")
    with pytest.raises(ConfigError, match=r"cannot change while the gateway serves: chunking\.tokens"):
        reload_gateway_settings(started, before)


def test_a_changed_list_of_hosts_is_noticed_unless_an_option_adds_a_host(tmp_path: Path) -> None:
    file = tmp_path / "rag.yaml"
    file.write_text("api: {hosts: [rag.example]}\n")
    sources = [build_source(GlobalOptions(config=file), host) for host in ("127.0.0.1", "rag-host")]
    default, named = map(load_gateway_settings, sources)
    assert (default.own.api.hosts, named.own.api.hosts) == (("rag.example",), ("rag.example", "rag-host"))
    file.write_text("api: {hosts: [other.example]}\n")
    with pytest.raises(ConfigError, match=r"cannot change while the gateway serves: api\.hosts"):
        reload_gateway_settings(default, sources[0])
