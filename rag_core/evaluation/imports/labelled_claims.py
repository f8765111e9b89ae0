"""Claims with labels, under the names of their fields in several datasets.

A label is 1 or 0; the fields are `context` and `answer`, or `doc` and `claim` as in LLM-AggreFact.
"""

from collections.abc import Iterator
from pathlib import Path

from rag_core.errors import DatasetError
from rag_core.evaluation.claims import LabelledClaim, parse_claim
from rag_core.evaluation.imports.rows import read_rows

OTHER_NAMES = {"doc": "context", "claim": "answer", "id": "_id"}


def read_labelled_claims(source: Path) -> Iterator[LabelledClaim]:
    """Yields the claims; one without an id gets its number."""
    ids = set[str]()
    for number, (location, row) in enumerate(read_rows(source), start=1):
        named = {OTHER_NAMES.get(key, key): value for key, value in row.items()}
        claim = parse_claim(location, {"_id": f"claim-{number}", **named})
        if claim.id in ids:
            raise DatasetError(f"{location}: duplicate claim {claim.id!r}")
        ids.add(claim.id)
        yield claim
