"""Posting lists of a term: of whatever segments are asked for, however they were read."""

from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from rag_core.storage.lexical.term_lists import NO_LISTS, TermLists

STORED = st.dictionaries(st.integers(1, 9), st.binary(min_size=2, max_size=6))
SOME = st.frozensets(st.integers(1, 9))


def read(stored: Mapping[int, bytes], segments: frozenset[int]) -> TermLists:
    """As the store answers: nothing of a segment that does not have the term."""
    lists = TermLists.from_segments({segment: own for segment, own in stored.items() if segment in segments})
    return replace(lists, read_segments=segments)


@given(STORED, st.lists(SOME, max_size=4), SOME)
def test_lists_are_those_of_the_segments_that_were_read(
    stored: dict[int, bytes], reads: list[frozenset[int]], wanted: frozenset[int]
) -> None:
    known = NO_LISTS
    for segments in reads:
        known = known.merge(read(stored, segments))
    assert known.read_segments == frozenset().union(*reads)
    assert dict(known) == {segment: own for segment, own in stored.items() if segment in known.read_segments}
    some = known.restrict_to(wanted)
    assert some.read_segments == known.read_segments & wanted
    assert dict(some) == {segment: own for segment, own in stored.items() if segment in some.read_segments}
