"""Packed columns: the numbers of many rows in one value, eight bytes each.

They are read faster than an SQL array, and an array is read faster than rows.
"""

from collections.abc import Iterable
from typing import LiteralString, TypeAlias

import numpy as np
from numpy.typing import NDArray
from psycopg.sql import SQL

Numbers: TypeAlias = NDArray[np.int64]

PACKED = np.dtype(">i8")


def packing_sql(*expressions: LiteralString) -> SQL:
    """The output columns of a select, one for each SQL expression: each packs the expression's values of all rows."""
    return SQL(", ".join(f"coalesce(string_agg(int8send({expression}), ''), '')" for expression in expressions))


def pack_numbers(numbers: Iterable[int]) -> bytes:
    return np.fromiter(numbers, PACKED).tobytes()


def unpack_numbers(column: bytes) -> Numbers:
    return np.frombuffer(column, PACKED).astype(np.int64)
