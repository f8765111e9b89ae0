"""A test of a difference that stays valid when it is looked at again and again.

It is the mixture sequential probability ratio test (Robbins 1970; Johari et al., Always Valid Inference, 2015) with a
normal mixture. `variance` is that of the difference of the means, its squared standard error. `effect` is the standard
deviation of the mixture: about the difference that is worth finding.
"""

import numpy as np

from rag_core.evaluation.significance import Floats


def log_likelihood_ratio(difference: Floats, variance: Floats, effect: float) -> Floats:
    """The evidence against no difference.

    Stop when it exceeds log(1 / alpha): without a difference, the probability that it ever does is at most alpha.
    """
    total = variance + effect**2
    evidence: Floats = effect**2 * difference**2 / (2 * variance * total) - np.log(total / variance) / 2
    return evidence


def interval_radius(variance: Floats, effect: float, alpha: float = 0.05) -> Floats:
    """Half the width of the interval that contains the difference at all looks together with probability 1 - alpha.

    It holds the differences whose evidence does not exceed log(1 / alpha).
    """
    total = variance + effect**2
    radius: Floats = np.sqrt(2 * variance * total / effect**2 * (np.log(1 / alpha) + np.log(total / variance) / 2))
    return radius
