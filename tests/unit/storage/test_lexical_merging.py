"""Which segments are merged, and what their postings become."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from rag_core.storage.lexical import merging
from rag_core.storage.lexical.merging import SegmentPart, SegmentSize, choose_segments, merge_postings
from rag_core.storage.lexical.segment import MAX_CHUNKS


def sizes(*live: int, dead: int = 0) -> list[SegmentSize]:
    return [SegmentSize(id, chunks + dead, chunks) for id, chunks in enumerate(live)]


@pytest.mark.parametrize(
    ("segments", "expected"),
    [
        pytest.param(sizes(*[20] * 15), [], id="few small ones stay"),
        pytest.param(sizes(*[20] * 16), list(range(16)), id="sixteen of a size become one"),
        pytest.param(sizes(*[20] * 15, 300), [], id="one of another size is not the sixteenth"),
        pytest.param(sizes(300, *[20] * 16), list(range(1, 17)), id="nor does it join them"),
        pytest.param(sizes(*[300] * 16, 3), [16, *range(16)], id="smaller ones join, the smallest first"),
        pytest.param(sizes(*[5_000] * 16), list(range(13)), id="no more than fit"),
        pytest.param(sizes(*[40_000] * 20), [], id="those that are more than half full stay"),
        pytest.param(sizes(85, dead=15), [], id="some dead stay"),
        pytest.param(sizes(84, dead=16), [0], id="many dead go"),
        pytest.param(sizes(0, dead=1), [0], id="what is all dead goes"),
        pytest.param([*sizes(20, 20), SegmentSize(7, 10, 1), SegmentSize(8, 10, 2)], [7, 8], id="many dead come first"),
        pytest.param(
            [SegmentSize(n, 20, 20, analysis=f"{n % 2}") for n in range(30)], [], id="terms of two analyses do not mix"
        ),
        pytest.param(
            [SegmentSize(n, 20, 20, kind=("words", "splade")[n % 2]) for n in range(32)],
            list(range(0, 32, 2)),
            id="nor do those of two kinds",
        ),
        pytest.param(
            [*sizes(20), SegmentSize(1, 20, 0, analysis="old")], [1], id="what is dead goes, whatever made it"
        ),
    ],
)
def test_which_are_due(segments: list[SegmentSize], expected: list[int]) -> None:
    assert choose_segments(segments) == expected


def test_chunks_written_again_are_few_however_many_small_segments_come() -> None:
    stored: list[int] = []
    written = 0
    for _ in range(4_000):
        stored.append(20)
        while due := choose_segments(sizes(*stored)):
            total = sum(stored[id] for id in due)
            assert total <= MAX_CHUNKS
            written += total
            stored = [*(live for id, live in enumerate(stored) if id not in set(due)), total]
    assert sum(stored) == 80_000
    assert written < 4 * 80_000
    assert len(stored) < 40


def part(places: Sequence[int], **postings: Sequence[tuple[int, int, int]]) -> SegmentPart:
    """The postings of each term are (local id, frequency, length)."""
    tables = [np.array(rows, "<u2").T.ravel() for rows in postings.values()]
    counts = np.array([len(rows) for rows in postings.values()], np.int64)
    return SegmentPart(
        np.array(places, np.int64), list(postings), counts, np.concatenate([np.empty(0, "<u2"), *tables])
    )


def read(terms: Sequence[str], sizes: Sequence[int], body: bytes) -> Mapping[str, list[list[int]]]:
    assert sum(sizes) == len(body)
    ends = np.cumsum(sizes).tolist()
    tables = [np.frombuffer(body[end - size : end], "<u2") for size, end in zip(sizes, ends, strict=True)]
    return {term: table.reshape(3, -1).T.tolist() for term, table in zip(terms, tables, strict=True)}


@pytest.mark.parametrize("at_once", [1, 2, 1_000])
def test_postings_are_renumbered_in_order_without_the_dead(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "MAX_BATCH_POSTINGS", at_once)
    first = part([0, -1, 1], both=[(0, 1, 5), (1, 2, 6), (2, 3, 7)], dead=[(1, 9, 6)], a=[(2, 1, 7)])
    second = part([-1, 2], z=[(1, 4, 8)], both=[(0, 1, 1), (1, 5, 8)])
    assert read(*merge_postings([first, second])) == {
        "a": [[1, 1, 7]],
        "both": [[0, 1, 5], [1, 3, 7], [2, 5, 8]],
        "z": [[2, 4, 8]],
    }


def test_postings_of_two_columns_are_renumbered_as_those_of_three() -> None:
    tables = [np.array([[0, 1, 2], [10, 11, 12]], "<u2"), np.array([[1], [20]], "<u2")]
    first = SegmentPart(np.array([0, -1, 1]), ["a"], np.array([3]), tables[0].ravel())
    second = SegmentPart(np.array([-1, 2]), ["a"], np.array([1]), tables[1].ravel())
    terms, lengths, body = merge_postings([first, second], columns=2)
    assert (terms, lengths) == (["a"], [12])
    assert np.frombuffer(body, "<u2").reshape(2, -1).tolist() == [[0, 1, 2], [10, 12, 20]]


def test_segments_without_a_term_make_one_without_a_term() -> None:
    assert merge_postings([part([0]), part([1, -1])]) == ([], [], b"")
