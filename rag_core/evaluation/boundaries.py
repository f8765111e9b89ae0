"""How well a text is cut where its parts end."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BoundaryScores:
    """Each between 0 and 1."""

    precision: float
    recall: float
    f1: float


def boundary_scores(found: Sequence[int], true: Sequence[int], tolerance: int = 0) -> BoundaryScores:
    """Of places in one text, ascending, its beginning and end left out. A found one matches one true one, at most
    `tolerance` away, and no other. Where there is nothing to find, nothing found is all right."""
    if not found and not true:
        return BoundaryScores(1.0, 1.0, 1.0)
    matched = _matched(found, true, tolerance)
    return BoundaryScores(
        precision=matched / max(1, len(found)),
        recall=matched / max(1, len(true)),
        f1=2 * matched / (len(found) + len(true)),
    )


def _matched(found: Sequence[int], true: Sequence[int], tolerance: int) -> int:
    """As many pairs as there can be: whichever place comes first has its last chance."""
    pairs = i = j = 0
    while i < len(found) and j < len(true):
        if abs(found[i] - true[j]) <= tolerance:
            pairs, i, j = pairs + 1, i + 1, j + 1
        elif found[i] < true[j]:
            i += 1
        else:
            j += 1
    return pairs
