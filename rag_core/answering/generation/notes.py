"""The notes before a passage's text in a prompt. The text itself stays the document's own."""

from collections.abc import Sequence
from datetime import datetime
from string import Formatter

from rag_core.errors import ConfigError
from rag_core.types import Passage

TEXT = "{text}"
FIELDS = ("title", "uri", "section", "age", "n")

_DAYS = {"year": 365, "month": 30, "day": 1}


def relevance_notes(scores: Sequence[float]) -> list[str]:
    """One note per score, by the scores scaled to [0, 1]; equal scores all count as 1."""
    lowest, highest = min(scores), max(scores)
    notes = []
    for score in scores:
        scaled = (score - lowest) / (highest - lowest) if highest > lowest else 1.0
        if scaled > 0.8:
            notes.append("[HIGHLY RELEVANT]")
        else:
            notes.append("[RELEVANT]" if scaled > 0.5 else "[POTENTIALLY RELEVANT]")
    return notes


def recency_note(passage: Passage, now: datetime) -> str:
    """The passage's age, such as `[3 days ago]`.

    If its metadata has `turns_ago` and `question`, the text is an earlier answer, and the note shows both.
    """
    metadata = passage.hit.origin.metadata
    if "turns_ago" in metadata and "question" in metadata:
        return f"[{metadata['turns_ago']} turns ago] Query: {metadata['question']} Answer:"
    return f"[{age(passage.hit.origin.updated_at, now)}]"


def template_note(template: str, passage: Passage, now: datetime) -> str:
    """The part of the template before {text}, filled in."""
    hit = passage.hit
    note = (
        template.rstrip()
        .removesuffix(TEXT)
        .format(
            title=hit.origin.title,
            uri=hit.origin.uri,
            section=hit.chunk.metadata.get("section", ""),
            age=age(hit.origin.updated_at, now),
            n=passage.n,
        )
    )
    return note.strip()


def headings(passage: Passage) -> str:
    """The lines above the passage's first chunk, without the title.

    They are the headings of its section, and the header of a table that the chunk continues.
    """
    first_line, _, others = passage.chunks[0].prefix.partition("\n")
    return others if first_line == passage.hit.origin.title else passage.chunks[0].prefix


def check_template(template: str) -> None:
    """Raises ConfigError unless the template ends with its only {text} and else contains plain `FIELDS` only."""
    try:
        parts = list(Formatter().parse(template))
    except ValueError as error:
        raise ConfigError(f"packing.template must have balanced braces, got {template!r}: {error}") from error
    fields = [
        f"{{{name}{'!' + conversion if conversion else ''}{':' + form if form else ''}}}"
        for _, name, form, conversion in parts
        if name is not None
    ]
    if fields.count(TEXT) != 1 or not template.rstrip().endswith(TEXT):
        raise ConfigError(f"packing.template must contain {TEXT} once, at its end, got {template!r}")
    allowed = [*(f"{{{name}}}" for name in FIELDS), TEXT]
    if unknown := [field for field in fields if field not in allowed]:
        raise ConfigError(f"packing.template can contain only {', '.join(allowed)}, got {', '.join(unknown)}")


def age(updated_at: datetime | None, now: datetime) -> str:
    """An age such as `3 days ago`, in whole days, months of 30 days or years of 365; `undated` without a date."""
    if updated_at is None:
        return "undated"
    days = (now - updated_at).days
    for unit, length in _DAYS.items():
        if days >= length:
            return f"{days // length} {unit}{'s' if days >= 2 * length else ''} ago"
    return "today"
