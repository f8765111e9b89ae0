"""The page of the settings, from their JSON schema."""

from collections.abc import Iterator

from rag_core.config import Settings
from rag_core.features import FEATURES
from tools.reference.markdown import JsonSchema, property_rows, table

INTRODUCTION = """\
# Settings

All settings, by section. They come from the profile, a YAML file (`--config`), environment variables
(`RAG_SECTION__KEY`) and `--set section.key=value`; a later one overrides an earlier one. `rag config show` prints each
value with its origin, `rag config check` checks a file, and `rag config schema` prints a JSON schema for editors.
"""
FEATURE_INTRODUCTION = """\
## features

Names that a file, an environment variable or the command line maps to true or false. Each stands for other settings:
[Switch features](../how-to/features.md). `conversational_search_phase1` to `4` switch those of later phases off.
"""
HEADINGS = ("setting", "type", "default", "meaning")


def render_settings() -> str:
    schema = Settings.model_json_schema()
    definitions, sections = schema["$defs"], schema["properties"]
    plain = {name: member for name, member in sections.items() if not _list_references(member)}
    parts = [INTRODUCTION, table(HEADINGS, property_rows({"properties": plain})), FEATURE_INTRODUCTION]
    rows = [(f"`{name}`", str(feature.phase or "none"), feature.description) for name, feature in FEATURES.items()]
    parts.append(table(("feature", "phase", "meaning"), rows))
    described: set[str] = set()
    for name, section in sections.items():
        if name in plain:
            continue
        parts.append(f"## {name}\n\n{section.get('description', '')}\n")
        definition = definitions.get(section.get("$ref", "").rpartition("/")[2])
        if definition:
            parts.append(table(HEADINGS, property_rows(definition)))
        for reference in _list_references(definition or section):
            parts += _render_definitions(reference, definitions, described)
    return "\n".join(parts)


def _render_definitions(name: str, definitions: JsonSchema, described: set[str]) -> Iterator[str]:
    """Yields the definition and those it refers to, each once on the page."""
    if name in described:
        return
    described.add(name)
    definition = definitions[name]
    kind = definition["properties"].get("type", {}).get("const")
    yield f"### {f'type: {kind}' if kind else name} {{#{name.lower()}}}\n\n{definition.get('description', '')}\n"
    rows = [row for row in property_rows(definition) if row[0] != "`type`"]
    if rows:
        yield table(HEADINGS, rows)
    for reference in _list_references(definition):
        yield from _render_definitions(reference, definitions, described)


def _list_references(schema: object) -> list[str]:
    """The names of the definitions to which the schema refers, in its order."""
    match schema:
        case {"$ref": reference}:
            return [reference.rpartition("/")[2]]
        case dict():
            return [name for key, value in schema.items() if key != "discriminator" for name in _list_references(value)]
        case list():
            return [name for value in schema for name in _list_references(value)]
        case _:
            return []
