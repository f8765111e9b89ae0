"""Drafts as Arrow tables, the only form in which Ray's processes exchange them.

Each row has one draft. A draft has nested parts of many types, so one column contains it pickled.
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
        ("embedding_started", pa.float64()),  # start of its block, in seconds since the epoch; 0 before
    ]
)


def drafts_to_table(drafts: Sequence[Draft], embedding_started: float = 0.0) -> pa.Table:
    return pa.table(
        {
            "uri": [draft.entry.uri for draft in drafts],
            "size": [draft.entry.size for draft in drafts],
            "draft": [pickle.dumps(draft, protocol=pickle.HIGHEST_PROTOCOL) for draft in drafts],
            "embedding_started": [embedding_started] * len(drafts),
        },
        schema=DRAFTS,
    )


def table_to_drafts(table: pa.Table) -> list[Draft]:
    """The drafts of a table of `drafts_to_table`. Other tables are unsafe, because unpickling runs code."""
    return [pickle.loads(row) for row in table["draft"].to_pylist()]  # noqa: S301
