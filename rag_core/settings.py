"""How settings come about: layers of YAML, environment and command line, each leaf with where it was set.

From weakest to strongest: the shipped default profile, the configuration file, the chosen profile and what it
extends, the environment (`RAG_SECTION__KEY`), the command line (`--set section.key=value`). A layer that gives a
section another `type` starts that section anew; `null` removes a key, and so brings its default back.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from rag_core.config import Settings
from rag_core.detection import DEFAULT_PROFILE, Signs
from rag_core.errors import ConfigError
from rag_core.telemetry.scrubbing import scrub, scrub_text
from rag_core.types import comparison_text

PROFILES = files("rag_core") / "profiles"
FILE_KEYS = {"profiles", "extends"}
TENANT = ["tenant"]


@dataclass(frozen=True, slots=True)
class Layered:
    """Valid settings; `origins` names for every leaf that was set, as `section.key`, who set it last."""

    settings: Settings
    origins: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Layer:
    origin: str
    tree: Mapping[str, Any]


@dataclass(slots=True)
class _Merged:
    tree: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)


class _Loader(yaml.SafeLoader):
    """Dates stay text: no setting is one."""


_Loader.yaml_implicit_resolvers = {
    first: [resolver for resolver in resolvers if resolver[0] != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def load_settings(
    file: Path | None = None,
    profile: str | None = None,
    overrides: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """ConfigError names the setting, the rule and the value."""
    return load_layered(file, profile, overrides, environment).settings


def load_layered(
    file: Path | None = None,
    profile: str | None = None,
    overrides: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Layered:
    given = os.environ if environment is None else environment
    chosen = profile or given.get("RAG_PROFILE") or DEFAULT_PROFILE
    merged = _Merged()
    for layer in (
        *_file_layers(file, chosen),
        _Layer("environment", _tree(_environment(given))),
        _Layer("command line", _tree(map(_assignment, overrides))),
    ):
        _merge(merged.tree, layer.tree, layer.origin, (), merged.origins)
    merged.tree["profile"] = chosen
    return Layered(settings=_validated(merged), origins=merged.origins)


def changed(settings: Settings, overrides: Sequence[str]) -> Settings:
    """The same with these overrides, as the command line takes them. ConfigError as of `load_settings`."""
    merged = _Merged(tree=settings.model_dump(mode="json"))
    _merge(merged.tree, _tree(map(_assignment, overrides)), "a change", (), merged.origins)
    return _validated(merged)


def profile_signs(file: Path | None = None) -> dict[str, Signs]:
    """By what each profile that can be detected is known: those of the file, or by name the shipped ones where there is
    none. One that nobody has named is not laid over what a file says."""
    shipped = [] if file else shipped_profiles()
    profiles = own_profiles(file) | {name: _read(PROFILES / f"{name}.yaml", f"profile {name}") for name in shipped}
    trees = {name: _mapping(tree, f"profile {name}") for name, tree in profiles.items()}
    return {name: _signs(tree["detect"], name) for name, tree in trees.items() if "detect" in tree}


def own_profiles(file: Path | None) -> dict[str, Any]:
    """Those of the file, as they stand there."""
    return _mapping(_read(file, str(file)).get("profiles"), "profiles", "profiles") if file else {}


def _signs(detect: Any, profile: str) -> Signs:
    signs = _mapping(detect, f"detect of profile {profile}", "patterns")
    for key, patterns in signs.items():
        if not isinstance(patterns, list) or not all(isinstance(pattern, str) for pattern in patterns):
            raise ConfigError(f"detect.{key} of profile {profile} must be a list of patterns, got {patterns!r:.60}")
    return signs


def shipped_profiles() -> list[str]:
    return sorted(file.name.removesuffix(".yaml") for file in PROFILES.iterdir())


def _file_layers(file: Path | None, profile: str) -> list[_Layer]:
    document = _read(file, str(file)) if file else {}
    own = _mapping(document.get("profiles"), "profiles", "profiles")
    top = {key: value for key, value in document.items() if key not in FILE_KEYS}
    base = _chain(str(document.get("extends") or DEFAULT_PROFILE), own={})
    chosen = [layer for layer in _chain(profile, own) if layer != base[0]]
    return [*base, _Layer(str(file), top), *chosen]


def _chain(name: str, own: Mapping[str, Any], seen: tuple[str, ...] = ()) -> list[_Layer]:
    """The profile and all that it extends, the root first."""
    if name in seen:
        raise ConfigError(f"profiles extend each other in a circle: {' -> '.join((*seen, name))}")
    origin = f"profile {name}"
    tree = _mapping(own[name], origin) if name in own else _read(PROFILES / f"{name}.yaml", origin)
    tree.pop("detect", None)
    parent = tree.pop("extends", None if name == DEFAULT_PROFILE else DEFAULT_PROFILE)
    before = _chain(str(parent), own, (*seen, name)) if parent else []
    return [*before, _Layer(origin, tree)]


def _read(path: Any, origin: str) -> dict[str, Any]:
    try:
        document = _parsed(path.read_text())
    except FileNotFoundError:
        known = f"; shipped profiles: {', '.join(shipped_profiles())}" if origin.startswith("profile ") else ""
        raise ConfigError(f"there is no {origin}{known}") from None
    except (OSError, ValueError, yaml.YAMLError) as error:  # ValueError of `0b_`, which YAML takes for a number
        raise ConfigError(f"cannot read {origin}: {scrub_text(str(error))}") from error
    return _mapping(document, origin)


def _mapping(document: Any, origin: str, of: str = "sections") -> dict[str, Any]:
    if not isinstance(document, dict | None):
        raise ConfigError(f"{origin} must be a mapping of {of}, got {_shown(document)}")
    return {str(key): value for key, value in (document or {}).items()}


def _environment(environment: Mapping[str, str]) -> Iterable[tuple[list[str], Any]]:
    """`RAG_SECTION__KEY`, and what has no section; other tools may have their `RAG_` names, too."""
    for name, value in sorted(environment.items()):
        path = name.removeprefix("RAG_").lower().split("__")
        if name.startswith("RAG_") and (len(path) > 1 or path == TENANT):
            yield path, _value(path, value)


def _assignment(text: str) -> tuple[list[str], Any]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ConfigError(f"--set takes SECTION.KEY=VALUE, got {scrub_text(text)!r}")
    path = key.strip().split(".")
    return path, _value(path, value)


def _value(path: Sequence[str], text: str) -> Any:
    """As YAML has it, but that a tenant of digits is no number."""
    try:
        value = _parsed(text)
    except (ValueError, yaml.YAMLError):
        return text
    return value if path != TENANT or isinstance(value, str | None) else text


def _parsed(text: str) -> Any:
    return yaml.load(text, _Loader)  # noqa: S506  # a SafeLoader


def _tree(leaves: Iterable[tuple[list[str], Any]]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, value in leaves:
        branch = tree
        for key in path[:-1]:
            if not isinstance(branch.get(key), dict):
                branch[key] = {}  # said again, as a section
            branch = branch[key]
        branch[path[-1]] = value
    return tree


def _merge(
    tree: dict[str, Any], layer: Mapping[str, Any], origin: str, path: tuple[str, ...], origins: dict[str, str]
) -> None:
    if "type" in layer and tree.get("type") not in (None, layer["type"]):
        _forget(tree, path, origins)
    for key, value in ((comparison_text(key), value) for key, value in layer.items()):
        leaf = ".".join((*path, key))
        if value is None:
            tree.pop(key, None)
            _forget_origins(leaf, origins)
        elif isinstance(value, Mapping):
            inner = tree.get(key)
            tree[key] = dict(inner) if isinstance(inner, dict) else {}
            _merge(tree[key], value, origin, (*path, key), origins)
        else:
            tree[key] = value
            origins[leaf] = origin


def _forget(tree: dict[str, Any], path: tuple[str, ...], origins: dict[str, str]) -> None:
    """What another type was told means nothing to this one."""
    tree.clear()
    _forget_origins(".".join(path), origins)


def _forget_origins(setting: str, origins: dict[str, str]) -> None:
    for leaf in [leaf for leaf in origins if _at_or_below(leaf, setting)]:
        del origins[leaf]


def _at_or_below(leaf: str, setting: str) -> bool:
    return leaf == setting or leaf.startswith(setting + ".")


def _validated(merged: _Merged) -> Settings:
    try:
        return Settings.model_validate(merged.tree)
    except ValidationError as error:
        raise ConfigError("\n".join(_complaint(each, merged) for each in error.errors())) from None


def _complaint(error: Any, merged: _Merged) -> str:
    setting = _setting(error["loc"], merged.tree)
    origins = _origins(setting, merged.origins)
    where = f" (set by {', '.join(origins)})" if origins else ""
    if not setting:  # of all settings together
        return str(error["msg"])
    return f"{setting}: {error['msg']}, got {_shown(error['input'], setting.rpartition('.')[2])}{where}"


def _shown(given: Any, name: str = "") -> str:
    """Its first 60 characters, without what opens a door: where a key's variable is to be named, the key may stand."""
    (clean,) = scrub({name.removesuffix("_env"): given}).values()
    return f"{clean!r:.60}"


def _setting(place: Sequence[str | int], tree: Mapping[str, Any]) -> str:
    """As it is set: without the types of sections, which pydantic puts behind their names."""
    names: list[str] = []
    section: Any = tree
    for part in place:
        if names and isinstance(section, Mapping) and section.get("type") == part and part not in section:
            continue
        names.append(str(part))
        section = section.get(part) if isinstance(section, Mapping) else None
    return ".".join(names)


def _origins(setting: str, origins: Mapping[str, str]) -> list[str]:
    """Who set it, or what it is a part of, or the parts of it."""
    return list(
        dict.fromkeys(o for leaf, o in origins.items() if _at_or_below(setting, leaf) or _at_or_below(leaf, setting))
    )
