"""What a configuration file may say, for editors."""

from typing import Any

from rag_core.config import Settings


def file_schema() -> dict[str, Any]:
    """JSON schema. Nothing is required: what a file leaves out, also within a section, its profile says."""
    schema = _partial(Settings.model_json_schema())
    extends = {"type": ["string", "null"], "description": "a shipped profile"}
    patterns = {"type": ["object", "null"], "additionalProperties": {"type": "array", "items": {"type": "string"}}}
    sections = {**schema["properties"], "extends": extends}
    profile = {**schema, "type": ["object", "null"], "properties": {**sections, "detect": patterns}}
    profile.pop("$defs")
    profiles = {"type": ["object", "null"], "additionalProperties": profile}
    return {**schema, "properties": {**sections, "profiles": profiles}}


def _partial(node: Any) -> Any:
    """Nothing is required, and anything may be null, which takes away what a profile says. Several kinds of a section
    may then take the same values."""
    match node:
        case {"properties": properties}:
            own = {name: {"anyOf": [_partial(value), {"type": "null"}]} for name, value in properties.items()}
            rest = {key: _partial(value) for key, value in node.items() if key not in ("properties", "required")}
            return {**rest, "properties": own}
        case {"oneOf": kinds}:
            return {"anyOf": _partial(kinds)}
        case {"additionalProperties": dict() as named}:
            return {**node, "additionalProperties": {"anyOf": [_partial(named), {"type": "null"}]}}
        case dict():
            return {key: _partial(value) for key, value in node.items()}
        case list():
            return [_partial(each) for each in node]
        case _:
            return node
