"""The weights of a conversation's history in the search, by how long its subject has been the same."""

SETTLED_TURNS = 5
"""The turns after which a subject is stable."""


def stability(turns_since_shift: int) -> float:
    """From 0, at a change of the subject, to 1 after five turns."""
    return min(1.0, turns_since_shift / SETTLED_TURNS)
