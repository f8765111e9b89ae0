"""The loader of settings: merges layers of YAML, environment and command line, and records the origin of each value.

The layers, from weakest to strongest, are the shipped default profile, the configuration file, the selected profile and
the profiles that it extends, the environment (`RAG_SECTION__KEY`), and the command line (`--set section.key=value`). A
layer that changes the `type` of a section discards the section's earlier keys. `null` removes a key, so that its
default applies again. Then `features` become the settings that they stand for, where no layer of the user has set them.
At last, disabled stages are taken out of the settings.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from rag_core.config import Settings
from rag_core.detection import DEFAULT_PROFILE, Detection, DetectPatterns
from rag_core.errors import ConfigError, suggest_name
from rag_core.features import list_feature_settings
from rag_core.private_files import check_private
from rag_core.setting_errors import FILE_KEYS, describe_setting_error, is_within, render_value
from rag_core.skipped_stages import skip_disabled_stages
from rag_core.telemetry.scrubbing import scrub_text
from rag_core.types import comparison_text

PROFILES = files("rag_core") / "profiles"
TENANT_PATH = ["tenant"]
DETECTION_KEYS = ("detect", "without_gpu")
"""Keys of a profile that decide when it is used. They are not settings."""


@dataclass(frozen=True, slots=True)
class LayeredSettings:
    """Valid settings; `origins` holds, by `section.key`, the layer that last set each value."""

    settings: Settings
    origins: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Layer:
    origin: str
    tree: Mapping[str, Any]


@dataclass(slots=True)
class _MergedLayers:
    tree: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)


class _SettingsLoader(yaml.SafeLoader):
    """A YAML loader that reads dates as text, because no setting is a date."""


_SettingsLoader.yaml_implicit_resolvers = {
    first: [resolver for resolver in resolvers if resolver[0] != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def load_settings(
    file: Path | None = None,
    profile: str | None = None,
    overrides: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """Merges and validates all layers. Raises ConfigError with the setting, the rule and the value."""
    return load_layered_settings(file, profile, overrides, environment).settings


def load_layered_settings(
    file: Path | None = None,
    profile: str | None = None,
    overrides: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> LayeredSettings:
    """Merges and validates all layers, with origins. Raises ConfigError with the setting, the rule and the value."""
    variables = os.environ if environment is None else environment
    profile = profile or variables.get("RAG_PROFILE") or DEFAULT_PROFILE
    merged = _MergedLayers()
    for layer in (
        *_file_layers(file, profile),
        _Layer("environment", _build_tree(_environment_leaves(variables))),
        _Layer("command line", _build_tree(map(_parse_assignment, overrides))),
    ):
        _merge_layer(merged.tree, layer.tree, layer.origin, (), merged.origins)
    _apply_features(merged, file)
    merged.tree["profile"] = profile
    return LayeredSettings(settings=_validate(merged), origins=merged.origins)


def with_overrides(settings: Settings, overrides: Sequence[str]) -> Settings:
    """Changes the settings by `SECTION.KEY=VALUE` overrides. Raises ConfigError as `load_settings` does."""
    merged = _MergedLayers(tree=settings.model_dump(mode="json", exclude_unset=True))
    _merge_layer(merged.tree, _build_tree(map(_parse_assignment, overrides)), "override", (), merged.origins)
    return _validate(merged)


def replace_sections(settings: Settings, sections: Mapping[str, Any], origin: str) -> Settings:
    """The settings with these sections instead of their own. Raises ConfigError as `load_settings` does."""
    others = settings.model_dump(mode="json", exclude_unset=True, exclude=set(sections))
    if "retrieval" in sections:  # its stages are not those of the earlier one
        others.get("skipped", {}).pop("questions", None)
    merged = _MergedLayers(tree=others)
    _merge_layer(merged.tree, sections, origin, (), merged.origins)
    return _validate(merged)


def read_detection(file: Path | None = None) -> Detection:
    """What detects the profiles: of the file's own ones, or without a file of the shipped ones, by name.

    A shipped profile that nobody named would override the file's values.
    """
    shipped = [] if file else list_shipped_profiles()
    profiles = read_profiles(file) | {name: _read_shipped_profile(name) for name in shipped}
    trees = {name: _check_mapping(tree, f"profile {name}") for name, tree in profiles.items()}
    return Detection(
        patterns={name: _check_patterns(tree["detect"], name) for name, tree in trees.items() if "detect" in tree},
        cpu_variants={name: str(tree["without_gpu"]) for name, tree in trees.items() if tree.get("without_gpu")},
        is_shipped=file is None,
    )


def describe_cpu_variant(settings: Settings, file: Path | None = None) -> str:
    """How the profile differs from the one that it replaces on a machine without a GPU; empty if it replaces none."""
    variants = read_detection(file).cpu_variants
    replaced = next((name for name, variant in variants.items() if variant == settings.profile), "")
    if not replaced:
        return ""
    sizes = [getattr(profile.chunking, "tokens", None) for profile in (settings, load_settings(file, replaced))]
    difference = "" if None in sizes else f": chunks have at most {sizes[0]} tokens instead of {sizes[1]}"
    return f"profile {settings.profile} replaces {replaced} on machines without a GPU{difference}"


def read_document(file: Path) -> dict[str, Any]:
    """The content of a YAML file, not validated. Raises ConfigError if there is no such file, or no mapping in it."""
    if not file.is_file():
        raise ConfigError(f"there is no file {file}; give an existing one")
    return _read_mapping(file, str(file))


def read_profiles(file: Path | None) -> dict[str, Any]:
    """The file's own profiles by name, not validated."""
    return _check_mapping(_read_mapping(file, str(file)).get("profiles"), "profiles", "profiles") if file else {}


def _check_patterns(detect: Any, profile: str) -> DetectPatterns:
    patterns_by_key = _check_mapping(detect, f"detect of profile {profile}", "patterns")
    for key, patterns in patterns_by_key.items():
        if not isinstance(patterns, list) or not all(isinstance(pattern, str) for pattern in patterns):
            raise ConfigError(f"detect.{key} of profile {profile} must be a list of patterns, got {patterns!r:.60}")
    return patterns_by_key


def list_shipped_profiles() -> list[str]:
    return sorted(file.name.removesuffix(".yaml") for file in PROFILES.iterdir())


def _file_layers(file: Path | None, profile: str) -> list[_Layer]:
    """The layers of the default profile, the file and the selected profile, weakest first."""
    document = _read_mapping(file, str(file)) if file else {}
    if file:
        check_private(file, document)
    file_profiles = _check_mapping(document.get("profiles"), "profiles", "profiles")
    sections = {key: value for key, value in document.items() if key not in FILE_KEYS}
    base = _profile_layers(str(document.get("extends") or DEFAULT_PROFILE), file_profiles={})
    selected = [layer for layer in _profile_layers(profile, file_profiles) if layer != base[0]]
    *others, last = [*base, _Layer(str(file), sections), *selected] if file else [*base, *selected]
    return [*map(_without_version, others), last]


def _apply_features(merged: _MergedLayers, file: Path | None) -> None:
    """Replaces the section `features` by the settings that it stands for. Settings that the user has set win."""
    if "features" not in merged.tree:
        return
    values = list_feature_settings(merged.tree, merged.tree.pop("features"))
    shipped = {f"profile {name}" for name in list_shipped_profiles() if name not in read_profiles(file)}
    explicit = [leaf for leaf, origin in merged.origins.items() if origin not in shipped]
    leaves = [
        (setting.split("."), value)
        for setting, value in values.items()
        if not any(is_within(leaf, setting.removesuffix(".type")) or is_within(setting, leaf) for leaf in explicit)
    ]
    _merge_layer(merged.tree, _build_tree(leaves), "features", (), merged.origins)


def _without_version(layer: _Layer) -> _Layer:
    """The layer without the version, which is not that of a profile which extends it."""
    return replace(layer, tree={key: value for key, value in layer.tree.items() if key != "version"})


def _profile_layers(name: str, file_profiles: Mapping[str, Any], children: tuple[str, ...] = ()) -> list[_Layer]:
    """The layers of the profile and of all profiles that it extends, root first; `children` extend it."""
    if name in children:
        raise ConfigError(
            f"profiles extend each other in a circle: {' -> '.join((*children, name))}; remove one `extends`"
        )
    origin = f"profile {name}"
    shipped = list_shipped_profiles()
    if name in file_profiles:
        tree = _check_mapping(file_profiles[name], origin)
    elif name in shipped:
        tree = dict(_read_shipped_profile(name))
    else:
        own = f"; profiles of the file: {', '.join(file_profiles)}" if file_profiles else ""
        hint = suggest_name(name, [*file_profiles, *shipped])
        raise ConfigError(f"there is no profile {name}{own}; shipped profiles: {', '.join(shipped)}{hint}")
    for key in DETECTION_KEYS:
        tree.pop(key, None)
    parent = tree.pop("extends", None if name == DEFAULT_PROFILE else DEFAULT_PROFILE)
    parents = _profile_layers(str(parent), file_profiles, (*children, name)) if parent else []
    return [*parents, _Layer(origin, tree)]


@cache
def _read_shipped_profile(name: str) -> Mapping[str, Any]:
    return _read_mapping(PROFILES / f"{name}.yaml", f"profile {name}")


def _read_mapping(path: Any, origin: str) -> dict[str, Any]:
    try:
        document = _parse_yaml(path.read_text())
    except FileNotFoundError:
        raise ConfigError(f"there is no file {origin}; give an existing one, or leave out --config") from None
    except yaml.MarkedYAMLError as error:
        place = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ConfigError(f"{origin} must be YAML: {place}{scrub_text(error.problem or str(error))}") from error
    except OSError as error:
        raise ConfigError(f"cannot read {origin}: {error.strerror}") from error
    except (ValueError, yaml.YAMLError) as error:  # ValueError: PyYAML takes `0b_` for a number
        raise ConfigError(f"cannot read {origin}: {scrub_text(str(error))}") from error
    return _check_mapping(document, origin)


def _check_mapping(document: Any, origin: str, content: str = "sections") -> dict[str, Any]:
    """Returns the mapping with text keys; None is an empty mapping. Raises ConfigError for any other value."""
    if not isinstance(document, dict | None):
        raise ConfigError(f"{origin} must be a mapping of {content}, got {render_value(document)}")
    return {str(key): value for key, value in (document or {}).items()}


def _environment_leaves(environment: Mapping[str, str]) -> Iterator[tuple[list[str], Any]]:
    """Yields path and value of each variable that names a setting, sorted by variable.

    These are RAG_SECTION__KEY and RAG_TENANT; other RAG_ variables can belong to other tools.
    """
    for name, value in sorted(environment.items()):
        path = name.removeprefix("RAG_").lower().split("__")
        if name.startswith("RAG_") and (len(path) > 1 or path == TENANT_PATH):
            yield path, _parse_value(path, value)


def _parse_assignment(text: str) -> tuple[list[str], Any]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ConfigError(f"--set takes SECTION.KEY=VALUE, got {scrub_text(text)!r}")
    path = key.strip().split(".")
    return path, _parse_value(path, value)


def _parse_value(path: Sequence[str], text: str) -> Any:
    """Parses the text as YAML. A tenant of digits stays text, and so does text that is not valid YAML."""
    try:
        value = _parse_yaml(text)
    except (ValueError, yaml.YAMLError):
        return text
    return value if path != TENANT_PATH or isinstance(value, str | None) else text


def _parse_yaml(text: str) -> Any:
    return yaml.load(text, _SettingsLoader)  # noqa: S506  # a SafeLoader


def _build_tree(leaves: Iterable[tuple[list[str], Any]]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, value in leaves:
        branch = tree
        for key in path[:-1]:
            if not isinstance(branch.get(key), dict):
                branch[key] = {}  # replaces an earlier single value
            branch = branch[key]
        branch[path[-1]] = value
    return tree


def _merge_layer(
    tree: dict[str, Any], layer: Mapping[str, Any], origin: str, path: tuple[str, ...], origins: dict[str, str]
) -> None:
    if "type" in layer and tree.get("type") not in (None, layer["type"]):
        tree.clear()  # keys of another type do not apply to this one
        _remove_origins(".".join(path), origins)
    for key, value in ((comparison_text(key), value) for key, value in layer.items()):
        leaf = ".".join((*path, key))
        if value is None:
            tree.pop(key, None)
            _remove_origins(leaf, origins)
        elif isinstance(value, Mapping):
            inner = tree.get(key)
            tree[key] = dict(inner) if isinstance(inner, dict) else {}
            _merge_layer(tree[key], value, origin, (*path, key), origins)
        else:
            tree[key] = value
            origins[leaf] = origin


def _remove_origins(setting: str, origins: dict[str, str]) -> None:
    for leaf in [leaf for leaf in origins if is_within(leaf, setting)]:
        del origins[leaf]


def _validate(merged: _MergedLayers) -> Settings:
    try:
        settings = Settings.model_validate(merged.tree)
    except ValidationError as failure:
        errors = (error for error in failure.errors() if error["type"] != "default_factory_not_called")
        lines = (describe_setting_error(error, merged.tree, merged.origins) for error in errors)
        raise ConfigError("\n".join(lines)) from None
    return skip_disabled_stages(settings)
