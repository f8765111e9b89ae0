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
    lists = TermLists.by_segment({segment: own for segment, own in stored.items() if segment in segments})
    return replace(lists, read=segments)


@given(STORED, st.lists(SOME, max_size=4), SOME)
def test_lists_are_those_of_the_segments_that_were_read(
    stored: dict[int, bytes], reads: list[frozenset[int]], wanted: frozenset[int]
) -> None:
    known = NO_LISTS
    for segments in reads:
        known = known.plus(read(stored, segments))
    assert known.read == frozenset().union(*reads)
    assert dict(known) == {segment: own for segment, own in stored.items() if segment in known.read}
    some = known.of(wanted)
    assert some.read == known.read & wanted
    assert dict(some) == {segment: own for segment, own in stored.items() if segment in some.read}
