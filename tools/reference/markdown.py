"""Markdown tables and JSON schemas in words."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

JsonSchema: TypeAlias = Mapping[str, Any]

_BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
_SIZES = {
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {}",
    "maxItems": "at most {}",
    "minProperties": "at least {}",
    "maxProperties": "at most {}",
}
_NAMES = {"string": "text", "boolean": "`true` or `false`", "null": "`null`", "object": "object"}


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table. A `|` in a cell is escaped, and line ends become blanks."""
    lines = [
        headings,
        ["---"] * len(headings),
        *([" ".join(cell.split()).replace("|", r"\|") for cell in row] for row in rows),
    ]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def code(value: object) -> str:
    """The value as JSON, as inline code."""
    return f"`{json.dumps(value, ensure_ascii=False)}`"


def property_rows(schema: JsonSchema) -> list[tuple[str, str, str, str]]:
    """The name, type, default and meaning of each property."""
    required = schema.get("required", ())
    return [
        (
            f"`{name}`",
            describe_type(member),
            "required" if name in required else code(member["default"]) if member.get("default") is not None else "",
            member.get("description", ""),
        )
        for name, member in schema.get("properties", {}).items()
    ]


def describe_type(schema: JsonSchema) -> str:
    """The type with its range. A type that has a name links to its heading, whose id is the name in lower case."""
    match schema:
        case {"$ref": reference}:
            name = reference.rpartition("/")[2]
            return f"[{name}](#{name.lower()})"
        case {"const": value}:
            return code(value)
        case {"enum": values}:
            return ", ".join(map(code, values))
        case {"discriminator": {"mapping": choices}}:
            links = (f"[{name}](#{choice.rpartition('/')[2].lower()})" for name, choice in sorted(choices.items()))
            return f"one of {', '.join(links)}"
        case {"anyOf": choices} | {"oneOf": choices}:
            return " or ".join(describe_type(choice) for choice in choices)
        case {"type": "array", "items": items}:
            return f"list of {describe_type(items)}{_describe_limits(schema)}"
        case {"type": "object", "additionalProperties": {} as values} if values:
            return f"by name: {describe_type(values)}{_describe_limits(schema)}"
        case {"type": name}:
            named = schema.get("format", _NAMES.get(name, name))
            return f"{named}{_describe_limits(schema)}"
        case _:
            return "any"


def _describe_limits(schema: JsonSchema) -> str:
    limits = [f"{sign} {schema[key]:g}" for key, sign in _BOUNDS.items() if key in schema]
    limits += [text.format(schema[key]) for key, text in _SIZES.items() if key in schema]
    limits += [f"`{schema['pattern']}`"] if "pattern" in schema else []
    return "".join(f", {limit}" for limit in limits)
