"""Posting lists of a term in any segments, in whatever order the segments were read."""

from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from rag_core.storage.lexical.term_lists import NO_LISTS, TermLists

STORED = st.dictionaries(st.integers(1, 9), st.binary(min_size=2, max_size=6))
SOME = st.frozensets(st.integers(1, 9))


def read(stored: Mapping[int, bytes], segments: frozenset[int]) -> TermLists:
    """Reads like the store, which returns nothing of a segment without the term."""
    lists = TermLists.from_segments({segment: postings for segment, postings in stored.items() if segment in segments})
    return replace(lists, read_segments=segments)


@given(STORED, st.lists(SOME, max_size=4), SOME)
def test_lists_are_those_of_the_segments_that_were_read(
    stored: dict[int, bytes], reads: list[frozenset[int]], wanted: frozenset[int]
) -> None:
    lists = NO_LISTS
    for segments in reads:
        lists = lists.merge(read(stored, segments))
    assert lists.read_segments == frozenset().union(*reads)
    assert dict(lists) == {segment: postings for segment, postings in stored.items() if segment in lists.read_segments}
    some = lists.restrict_to(wanted)
    assert some.read_segments == lists.read_segments & wanted
    assert dict(some) == {segment: postings for segment, postings in stored.items() if segment in some.read_segments}
