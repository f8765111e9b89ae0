"""What a configuration file may say, for editors."""

from typing import Any

from rag_core.config import Settings


def file_schema() -> dict[str, Any]:
    """JSON schema. Nothing is required: what a file leaves out, also within a section, its profile says."""
    schema = _partial(Settings.model_json_schema())
    sections = {**schema["properties"], "extends": {"type": "string", "description": "a shipped profile"}}
    patterns = {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}}
    profile = {**schema, "properties": {**sections, "detect": patterns}}
    profile.pop("$defs")
    profiles = {"type": "object", "additionalProperties": profile}
    return {**schema, "properties": {**sections, "profiles": profiles}}


def _partial(node: Any) -> Any:
    """Without what is required, and null for what a profile names and a file takes away. Several kinds of a section may
    then take the same values."""
    match node:
        case dict():
            kept = {key: _partial(value) for key, value in node.items() if key not in ("required", "discriminator")}
            if isinstance(named := kept.get("additionalProperties"), dict):
                kept["additionalProperties"] = {"anyOf": [named, {"type": "null"}]}
            return {("anyOf" if key == "oneOf" else key): value for key, value in kept.items()}
        case list():
            return [_partial(each) for each in node]
        case _:
            return node
