"""The agreement of the boundaries where a text is split with those of its parts."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BoundaryScores:
    """Each score is from 0 to 1."""

    precision: float
    recall: float
    f1: float


def boundary_scores(predicted: Sequence[int], expected: Sequence[int], tolerance: int = 0) -> BoundaryScores:
    """Compares boundaries of one text, ascending, without its beginning and end.

    Each predicted boundary matches at most one expected boundary, at most `tolerance` away, and vice versa. All scores
    are 1 if there are none of either.
    """
    if not predicted and not expected:
        return BoundaryScores(1.0, 1.0, 1.0)
    matches = _count_matches(predicted, expected, tolerance)
    return BoundaryScores(
        precision=matches / max(1, len(predicted)),
        recall=matches / max(1, len(expected)),
        f1=2 * matches / (len(predicted) + len(expected)),
    )


def _count_matches(predicted: Sequence[int], expected: Sequence[int], tolerance: int) -> int:
    """The largest possible number of pairs. Greedy: the lower boundary of two that do not match can never match."""
    pairs = i = j = 0
    while i < len(predicted) and j < len(expected):
        if abs(predicted[i] - expected[j]) <= tolerance:
            pairs, i, j = pairs + 1, i + 1, j + 1
        elif predicted[i] < expected[j]:
            i += 1
        else:
            j += 1
    return pairs
