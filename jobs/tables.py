"""Drafts as Arrow tables: the only shape in which they travel between Ray's processes.

A row is a document. Its parts are nested and of many types, so the draft itself travels pickled in one column.
"""

import pickle
from collections.abc import Sequence

import pyarrow as pa

from rag_core.types import Draft

DRAFTS = pa.schema(
    [
        ("uri", pa.string()),
        ("size", pa.int64()),
        ("draft", pa.large_binary()),
        ("began", pa.float64()),  # when the embedding of its block began, in seconds since the epoch; 0 before
    ]
)


def drafts_to_table(drafts: Sequence[Draft], began: float = 0.0) -> pa.Table:
    return pa.table(
        {
            "uri": [draft.entry.uri for draft in drafts],
            "size": [draft.entry.size for draft in drafts],
            "draft": [pickle.dumps(draft, protocol=pickle.HIGHEST_PROTOCOL) for draft in drafts],
            "began": [began] * len(drafts),
        },
        schema=DRAFTS,
    )


def table_to_drafts(table: pa.Table) -> list[Draft]:
    """Only for tables of our own making: unpickling runs code."""
    return [pickle.loads(row) for row in table["draft"].to_pylist()]  # noqa: S301
