"""Whose terms the lexical index holds: a document has its words there, and those of SPLADE where the profile asks."""

WORDS = "words"
SPLADE = "splade"
KINDS = (SPLADE, WORDS)

COLUMNS = {WORDS: 3, SPLADE: 2}
"""How many numbers a posting has: see `segment.Segment`."""
