"""The JSON schema of a configuration file, for editors."""

from typing import Any

from rag_core.config import Settings
from rag_core.features import FEATURES, PHASE_FLAGS

_NULL = {"type": "null"}


def file_schema() -> dict[str, Any]:
    """The schema requires no key, because the profile supplies every key that a file leaves out."""
    schema = _make_optional(Settings.model_json_schema())
    extends = {
        "type": ["string", "null"],
        "description": "Profile whose settings apply where this one has none.",
    }
    patterns = {"type": ["object", "null"], "additionalProperties": {"type": "array", "items": {"type": "string"}}}
    sections = {**schema["properties"], "extends": extends, "features": _feature_schema()}
    variant = {
        "type": ["string", "null"],
        "description": "Profile to use instead if this one is detected on a machine without a GPU.",
    }
    profile = {
        **schema,
        "type": ["object", "null"],
        "properties": {**sections, "detect": patterns, "without_gpu": variant},
    }
    profile.pop("$defs")
    profiles = {"type": ["object", "null"], "additionalProperties": profile}
    return {**schema, "properties": {**sections, "profiles": profiles}}


def _feature_schema() -> dict[str, Any]:
    flags = {
        name: {"type": ["boolean", "null"], "description": feature.description} for name, feature in FEATURES.items()
    }
    phases = {
        name: {"type": ["boolean", "null"], "description": f"True switches the features after phase {phase} off."}
        for name, phase in PHASE_FLAGS.items()
    }
    return {
        "type": ["object", "null"],
        "properties": {**flags, **phases},
        "additionalProperties": False,
        "description": "Parts of the pipeline that are switched as a whole.",
    }


def _make_optional(node: Any) -> Any:
    """Makes every property optional and nullable; null removes the profile's value.

    `oneOf` becomes `anyOf`, because a partial section can be valid for several types.
    """
    match node:
        case {"properties": properties}:
            nullable = {name: {"anyOf": [_make_optional(value), _NULL]} for name, value in properties.items()}
            others = {
                key: _make_optional(value) for key, value in node.items() if key not in ("properties", "required")
            }
            return {**others, "properties": nullable}
        case {"oneOf": types}:
            description = {key: value for key, value in node.items() if key == "description"}
            return {**description, "anyOf": _make_optional(types)}
        case {"additionalProperties": dict() as values}:
            return {**node, "additionalProperties": {"anyOf": [_make_optional(values), _NULL]}}
        case dict():
            return {key: _make_optional(value) for key, value in node.items()}
        case list():
            return [_make_optional(item) for item in node]
        case _:
            return node
