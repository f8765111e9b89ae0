"""The kinds of terms in the lexical index: every document has its words, and SPLADE terms if the profile has SPLADE."""

WORDS = "words"
SPLADE = "splade"
KINDS = (SPLADE, WORDS)

COLUMNS = {WORDS: 3, SPLADE: 2}
"""The count of numbers in a posting: see `segment.Segment`."""
