"""Batches of texts by their number of tokens."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Schedule(NamedTuple):
    """The sizes of batches, in tokens."""

    max_tokens: int
    min_tokens: int


def split_into_batches(lengths: Sequence[int], schedule: Schedule, threads: int = 1) -> Iterator[list[int]]:
    """Yields batches of indexes of texts; each batch has about `schedule.max_tokens` tokens.

    The longest texts are first. With several threads, the last batches get smaller and smaller, so that all threads end
    at about the same time. (Polychronopoulos and Kuck, Guided self-scheduling, IEEE Transactions on Computers 1987.)
    """
    batch: list[int] = []
    tokens, remaining = 0, sum(lengths)
    for index in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        batch.append(index)
        tokens += lengths[index]
        share = max(remaining // (2 * threads), schedule.min_tokens)
        if tokens >= schedule.max_tokens or (threads > 1 and tokens >= share):
            yield batch
            remaining -= tokens
            batch, tokens = [], 0
    if batch:
        yield batch
