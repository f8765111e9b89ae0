"""The cache of segments: which chunks they number, and that it keeps no more than its limit."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_core.storage.lexical.segment_cache import SegmentCache, SegmentChunks, pack_ids
from rag_core.storage.lexical.term_lists import NO_LISTS, TermLists

IDS = st.integers(0, 2**128 - 1) | st.integers(0, 300).map(lambda low: low << 96)  # which end with zeros
"""Ids of chunks, as integers."""


def chunks(*ids: int) -> SegmentChunks:
    return SegmentChunks(b"".join(UUID(int=id).bytes for id in ids))


@given(st.lists(IDS, min_size=1, unique=True), st.lists(IDS, unique=True), st.data())
def test_numbers_lead_to_ids_and_back(ids: list[int], others: list[int], data: st.DataObject) -> None:
    segment = chunks(*ids)
    assert [segment.id(local).int for local in range(len(ids))] == ids
    wanted = data.draw(st.permutations([*ids, *others]))
    places, locals = segment.find(pack_ids([UUID(int=id) for id in wanted]))
    assert {wanted[place]: ids[local] for place, local in zip(places, locals, strict=True)} == {id: id for id in ids}


def test_nothing_is_found_where_nothing_is_sought() -> None:
    assert [numbers.tolist() for numbers in chunks(1, 2).find(pack_ids([]))] == [[], []]


def test_the_largest_numbers_fit() -> None:
    places, locals = chunks(*range(65_536)).find(pack_ids([UUID(int=65_535)]))
    assert (places.tolist(), locals.tolist()) == ([0], [65_535])


@pytest.mark.parametrize(("room", "expected"), [(0, []), (1, [3]), (2, [2, 3]), (3, [1, 2, 3])])
def test_the_chunks_that_were_read_first_go_first(room: int, expected: list[int]) -> None:
    cache = SegmentCache(0, room * chunks(1, 2).n_bytes)
    for segment in (1, 1, 1, 2, 3):
        cache.store_chunks(segment, chunks(1, 2))
    assert [segment for segment in (1, 2, 3) if cache.chunks(segment) is not None] == expected


def key(term: str) -> tuple[str, int, str]:
    return "tenant", 1, term


def test_the_lists_of_the_terms_that_were_asked_for_longest_ago_go_first() -> None:
    one = TermLists.from_segments({1: b"abcd"})
    cache = SegmentCache(2 * one.n_bytes, 0)
    cache.store_lists(key("old"), one)
    cache.store_lists(key("asked"), one)
    assert cache.lists(key("old")) is one
    cache.store_lists(key("new"), one)
    assert [cache.lists(key(term)) for term in ("old", "asked", "new")] == [one, NO_LISTS, one]


def test_lists_that_take_the_place_of_others_count_once() -> None:
    small, large = TermLists.from_segments({1: b"abcd"}), TermLists.from_segments({1: b"abcd", 2: b"ef"})
    cache = SegmentCache(small.n_bytes + large.n_bytes, 0)
    for lists in (small, large, large):
        cache.store_lists(key("grows"), lists)
    cache.store_lists(key("other"), small)
    assert (cache.lists(key("grows")), cache.lists(key("other"))) == (large, small)
