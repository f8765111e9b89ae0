from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import pytest

from rag_core.errors import FencedError
from rag_core.ingestion.inline import GROUP_BYTES, InlineRunner
from rag_core.ingestion.watch import Check, never_stop
from rag_core.types import Draft, Entry


class RecordingWriter:
    """Keeps the sizes of what is published together."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []

    def publish(self, drafts: Sequence[Draft]) -> None:
        self.groups.append([draft.entry.size for draft in drafts])

    def close(self) -> None: ...


class NothingToEmbed:
    start_seconds = 0.0

    def __call__(self, drafts: Sequence[Draft]) -> Sequence[Draft]:
        return drafts


class EndedJob(RecordingWriter):
    """The job is ended after the first group."""

    def publish(self, drafts: Sequence[Draft]) -> None:
        if self.groups:
            raise FencedError("the job was ended")
        super().publish(drafts)


class Store:
    """Counts the connections to it."""

    def __init__(self, writer: RecordingWriter) -> None:
        self.writer, self.opened = writer, 0

    def open(self) -> RecordingWriter:
        self.opened += 1
        return self.writer


def groups(*sizes: int, most: int = 3, writer: RecordingWriter | None = None) -> list[list[int]]:
    writer = writer or RecordingWriter()
    run(Store(writer), *sizes, most=most)
    return writer.groups


def run(target: Any, *sizes: int, most: int, check: Check = never_stop) -> None:
    embed = NothingToEmbed()
    drafts = [
        Draft(id=uuid4(), source=1, entry=Entry(uri="a.txt", size=size, modified_ns=0), recipe="") for size in sizes
    ]
    stages: Any = {"build_preparation": lambda _: iter, "build_embedding": lambda _: embed}
    InlineRunner(**stages, group_size=most).run(target, {}, drafts, check)


def test_small_documents_go_together_up_to_the_group() -> None:
    assert groups(5, 4, 3, 2) == [[5, 4, 3], [2]]


def test_groups_grow_to_their_size() -> None:
    assert list(map(len, groups(*[1] * 100, most=40))) == [16, 32, 40, 12]


def test_large_documents_go_in_groups_of_bounded_size() -> None:
    half = GROUP_BYTES // 2
    assert groups(half, half, half, 1) == [[half, half], [half, 1]]


def test_a_document_larger_than_a_group_goes_alone() -> None:
    assert groups(GROUP_BYTES * 5, 1, 1) == [[GROUP_BYTES * 5], [1, 1]]


@pytest.mark.parametrize("count", [2, 3, 50])
def test_a_failed_publication_ends_the_run_even_in_the_last_group(count: int) -> None:
    writer = EndedJob()
    with pytest.raises(FencedError):
        groups(*[1] * count, most=1, writer=writer)
    assert writer.groups == [[1]]


@pytest.mark.parametrize(("count", "connections"), [(1, 1), (3, 1), (4, 2)])
def test_one_group_needs_one_connection(count: int, connections: int) -> None:
    store = Store(RecordingWriter())
    run(store, *[1] * count, most=3)
    assert store.opened == connections
    assert sum(map(len, store.writer.groups)) == count


@pytest.mark.parametrize("allowed", [0, 1, 17])
def test_a_job_that_must_stop_publishes_no_further_group(allowed: int) -> None:
    calls = 0

    def check() -> None:
        nonlocal calls
        calls += 1
        if calls > allowed:
            raise FencedError("the job was cancelled")

    writer = RecordingWriter()
    with pytest.raises(FencedError, match="the job was cancelled"):
        run(Store(writer), *[1] * 100, most=16, check=check)
    assert sum(map(len, writer.groups)) <= allowed
    assert calls <= allowed + 2  # of the reader and of the main thread
