"""The messages for settings that break a rule: the setting, the rule, the value, and the name that was likely meant."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from rag_core.config import Settings
from rag_core.errors import suggest_name
from rag_core.secret_references import HIDDEN
from rag_core.telemetry.scrubbing import scrub

FILE_KEYS = {"profiles", "extends"}
"""Keys of a configuration file that are not sections."""
MAX_LISTED_KEYS = 12


def describe_setting_error(error: Any, tree: Mapping[str, Any], origins: Mapping[str, str]) -> str:
    """One line for one of pydantic's errors, with the origins of the setting, of its section and of its parts.

    `tree` is the tree that was validated, and `origins` holds the layer that set each leaf.
    """
    location, kind = error["loc"], error["type"]
    setting = setting_name(location, tree)
    rule = str(error["msg"]).removeprefix("Value error, ")
    if not setting:  # the rule concerns all settings together
        return rule
    set_by = dict.fromkeys(
        origin for leaf, origin in origins.items() if is_within(setting, leaf) or is_within(leaf, setting)
    )
    origin = f" (set by {', '.join(set_by)})" if set_by else ""
    is_hidden = _holds_secrets(_find_schema(location))
    got = f", got {HIDDEN if is_hidden else render_value(error['input'], setting.rpartition('.')[2])}"
    match kind:
        case "extra_forbidden" if setting.endswith(".enabled"):
            return f"{setting}: nothing works without this stage, so it cannot be disabled; remove this key{origin}"
        case "extra_forbidden":  # without the value, which can be a secret
            return f"{setting}: unknown setting{_suggest_key(location, setting)}{origin}"
        case "missing":
            return f"{setting}: this setting is required{origin}"
        case "union_tag_not_found":
            return f"{setting}.type: this setting is required: one of {_list_types(location)}{origin}"
        case "union_tag_invalid":
            tag, names = str(error["ctx"]["tag"]), _find_quoted_names(error["ctx"]["expected_tags"])
            got = f", got {render_value(tag)}"
            return f"{setting}.type: must be one of {', '.join(names)}{got}{suggest_name(tag, names)}{origin}"
        case "literal_error" if isinstance(error["input"], str):
            hint = suggest_name(error["input"], _find_quoted_names(error["ctx"]["expected"]))
            return f"{setting}: {rule}{got}{hint}{origin}"
        case "string_pattern_mismatch":
            examples = _find_schema(location).get("examples", [])
            return f"{setting}: {rule}{got}{''.join(f'; example: {example}' for example in examples[:1])}{origin}"
        case "value_error" if isinstance(error["input"], Mapping | None):  # a rule between settings: it has the values
            return f"{setting}: {rule}{origin}"
        case _:
            return f"{setting}: {rule}{got}{origin}"


def render_value(value: Any, name: str = "") -> str:
    """The first 60 characters of the value, with secrets removed.

    A setting that should name the variable of a key (`api_key_env`) can hold the key itself by mistake.
    """
    (clean,) = scrub({name.removesuffix("_env"): value}).values()
    return f"{clean!r:.60}"


def setting_name(location: Sequence[str | int], tree: Mapping[str, Any]) -> str:
    """The setting as a user writes it: without the section types that pydantic adds to an error's location."""
    names: list[str] = []
    section: Any = tree
    for part in location:
        if names and isinstance(section, Mapping) and section.get("type") == part and part not in section:
            continue
        names.append(str(part))
        section = section.get(part) if isinstance(section, Mapping) else None
    return ".".join(names)


def is_within(leaf: str, setting: str) -> bool:
    """True if the leaf is the setting itself or below it."""
    return leaf == setting or leaf.startswith(setting + ".")


def _suggest_key(location: Sequence[str | int], setting: str) -> str:
    """The key that was likely meant, or the keys of its section if they are few."""
    section, _, key = setting.rpartition(".")
    keys = sorted(_find_schema(location[:-1]).get("properties", {})) + (
        [] if section else sorted({*FILE_KEYS, "features"})
    )
    if hint := suggest_name(key, keys, f"{section}." if section else ""):
        return hint
    listing = f"the settings of {section} are {', '.join(keys)}" if section else "`rag config show` lists the settings"
    return f"; {listing}" if len(keys) <= MAX_LISTED_KEYS or not section else ""


def _find_schema(location: Sequence[str | int]) -> Mapping[str, Any]:
    """The JSON schema of the setting at a location of pydantic's, or an empty one."""
    schema = _read_settings_schema()
    definitions: Mapping[str, Any] = schema["$defs"]
    node: Mapping[str, Any] = schema
    for part in location:
        node = _resolve(node, definitions)
        references = node.get("discriminator", {}).get("mapping", {})
        if part in references:
            node = {"$ref": references[part]}
        else:
            node = node.get("properties", {}).get(part) or node.get("additionalProperties") or {}
        if not isinstance(node, Mapping):
            return {}
    return _resolve(node, definitions)


@cache
def _read_settings_schema() -> Mapping[str, Any]:
    """The schema of all settings, which takes 40 ms to build."""
    return Settings.model_json_schema()


def _holds_secrets(schema: Mapping[str, Any]) -> bool:
    """True for the schema of a secret, or of secrets by name."""
    values = schema.get("additionalProperties")
    return bool(schema.get("writeOnly")) or (isinstance(values, Mapping) and bool(values.get("writeOnly")))


def _resolve(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follows references, and the first alternative of an optional setting."""
    while "$ref" in node or "anyOf" in node:
        reference = node.get("$ref", "").rpartition("/")[2]
        node = definitions[reference] if reference else node["anyOf"][0]
    return node


def _list_types(location: Sequence[str | int]) -> str:
    return ", ".join(_find_schema(location).get("discriminator", {}).get("mapping", {}))


def _find_quoted_names(text: str) -> list[str]:
    """The names in quotes of one of pydantic's messages, such as `'off' or 'flag'`."""
    return re.findall(r"'([^']*)'", text)
