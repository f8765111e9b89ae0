"""How often answers of a confidence are right."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rag_core.evaluation.answers import share_estimate
from rag_core.evaluation.significance import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class ReliabilityBin:
    """Answers of similar confidence: their mean confidence, and the share of right ones with its 95 % interval."""

    confidence: float
    right: Estimate
    count: int


def reliability_bins(confidences: Sequence[float], right: Sequence[bool], bins: int = 10) -> list[ReliabilityBin]:
    """Returns up to `bins` bins of equal size, the least confident first, as in `calibration_error`.

    DeGroot and Fienberg, The comparison and evaluation of forecasters, The Statistician 1983; the intervals are
    Wilson's.
    """
    expected, outcomes = np.asarray(confidences, np.float64), np.asarray(right, np.bool_)
    parts = [part for part in np.array_split(np.argsort(expected, kind="stable"), bins) if len(part)]
    return [
        ReliabilityBin(
            confidence=float(expected[part].mean()),
            right=share_estimate(int(outcomes[part].sum()), len(part)),
            count=len(part),
        )
        for part in parts
    ]
