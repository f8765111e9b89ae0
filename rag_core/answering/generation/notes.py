"""What stands before a passage's text in a prompt. The text itself stays the document's own."""

from collections.abc import Sequence
from datetime import datetime
from string import Formatter

from rag_core.errors import ConfigError
from rag_core.types import Passage

TEXT = "{text}"
FIELDS = ("title", "uri", "section", "age", "n")

_UNITS = {"year": 365, "month": 30, "day": 1}


def relevance_notes(scores: Sequence[float]) -> list[str]:
    """By score, scaled to [0, 1] over all of them; equal scores are all 1."""
    least, most = min(scores), max(scores)
    return [_relevance((score - least) / (most - least) if most > least else 1.0) for score in scores]


def recency_note(passage: Passage, now: datetime) -> str:
    """Its age; or how many turns ago it was said, where the metadata has `turns_ago` and `question`, to which the text
    is the answer."""
    told = passage.hit.origin.metadata
    if "turns_ago" in told and "question" in told:
        return f"[{told['turns_ago']} turns ago] Query: {told['question']} Answer:"
    return f"[{age(passage.hit.origin.updated_at, now)}]"


def template_note(template: str, passage: Passage, now: datetime) -> str:
    """The template as far as its {text}."""
    hit = passage.hit
    filled = (
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
    return filled.strip()


def headings(passage: Passage) -> str:
    """What stands above its first chunk, below the title: those of its section, and the header of the table that it
    goes on with."""
    first, _, rest = passage.chunks[0].prefix.partition("\n")
    return rest if first == passage.hit.origin.title else passage.chunks[0].prefix


def check_template(template: str) -> None:
    """ConfigError unless it ends with {text}, has it once, and beside it plain FIELDS only."""
    fields = _fields(template)
    if fields.count(TEXT) != 1 or not template.rstrip().endswith(TEXT):
        raise ConfigError(f"template must have {TEXT} once, at its end, got {template!r}")
    known = [f"{{{name}}}" for name in FIELDS]
    if unknown := [each for each in fields if each not in (TEXT, *known)]:
        raise ConfigError(f"template may have {', '.join((*known, TEXT))}, got {', '.join(unknown)}")


def age(updated_at: datetime | None, now: datetime) -> str:
    """Such as `3 days ago`, in whole days, months of 30, or years of 365; `undated` if that is not known."""
    if updated_at is None:
        return "undated"
    days = (now - updated_at).days
    for unit, length in _UNITS.items():
        if days >= length:
            return f"{days // length} {unit}{'s' if days >= 2 * length else ''} ago"
    return "today"


def _relevance(score: float) -> str:
    if score > 0.8:
        return "[HIGHLY RELEVANT]"
    return "[RELEVANT]" if score > 0.5 else "[POTENTIALLY RELEVANT]"


def _fields(template: str) -> list[str]:
    """As they are written, in braces, with their conversion and format."""
    try:
        parsed = list(Formatter().parse(template))
    except ValueError as unbalanced:
        raise ConfigError(f"template must have its braces in pairs, got {template!r}: {unbalanced}") from unbalanced
    return [
        f"{{{name}{'!' + conversion if conversion else ''}{':' + form if form else ''}}}"
        for _, name, form, conversion in parsed
        if name is not None
    ]
