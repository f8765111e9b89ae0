"""Claims that people labelled: does the context support them? They measure a judge.

DIR/judge.jsonl   one {"_id", "context", "answer", "label"} per line; the label is 1 if it does, else 0
"""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from rag_core.errors import DatasetError
from rag_core.evaluation.dataset_lines import Row, read_unique_rows, string_field, write_json_lines

CLAIMS = "judge.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledClaim:
    """A claim about a context. `is_supported` is the judgement of people."""

    id: str
    context: str
    text: str
    is_supported: bool


def has_claims(folder: Path) -> bool:
    return (folder / CLAIMS).is_file()


def read_claims(folder: Path, limit: int | None = None) -> list[LabelledClaim]:
    """The first `limit` claims, or all. Raises DatasetError for a line that breaks a rule, and if they have one label.

    Their figures compare the claims with label 1 and with label 0.
    """
    claims = [parse_claim(location, row) for location, row in read_unique_rows(folder / CLAIMS)][:limit]
    if len({claim.is_supported for claim in claims}) < 2:
        place = f" among the first {limit}" if limit else ""
        raise DatasetError(f"{folder / CLAIMS} must have claims with label 1 and with label 0{place}")
    return claims


def parse_claim(location: str, row: Row) -> LabelledClaim:
    label = row.get("label")
    if label not in (0, 1):
        raise DatasetError(f"{location}: 'label' must be 0 or 1, got {label!r:.60}")
    return LabelledClaim(
        id=string_field(location, row, "_id"),
        context=string_field(location, row, "context"),
        text=string_field(location, row, "answer"),
        is_supported=bool(label),
    )


def write_claims(folder: Path, claims: Iterable[LabelledClaim]) -> None:
    rows = (
        {"_id": claim.id, "context": claim.context, "answer": claim.text, "label": int(claim.is_supported)}
        for claim in claims
    )
    write_json_lines(folder / CLAIMS, rows)


def hash_claims(folder: Path) -> str:
    """The SHA-256 of the claims and their labels, in hexadecimal digits. Their order does not matter."""
    claims = sorted(f"{claim!r}" for claim in read_claims(folder))
    return sha256("\n".join(claims).encode()).hexdigest()
