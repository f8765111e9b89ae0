"""A test of a difference that stays valid when it is looked at again and again.

It is the mixture sequential probability ratio test (Robbins 1970; Johari et al., Always Valid Inference, 2015) with a
normal mixture. `variance` is that of the difference of the means, its squared standard error. `effect` is the standard
deviation of the mixture: about the difference that is worth finding.
"""

import numpy as np

from rag_core.evaluation.significance import Floats


def likelihood_ratio(difference: Floats, variance: Floats, effect: float) -> Floats:
    """The evidence against no difference. Stop when it exceeds 1 / alpha: that happens by chance with at most alpha."""
    total = variance + effect**2
    return np.sqrt(variance / total) * np.exp(effect**2 * difference**2 / (2 * variance * total))


def interval_radius(variance: Floats, effect: float, alpha: float = 0.05) -> Floats:
    """Half the width of the interval that contains the difference at all looks together with probability 1 - alpha.

    It holds the differences whose likelihood ratio does not exceed 1 / alpha.
    """
    total = variance + effect**2
    return np.sqrt(2 * variance * total / effect**2 * (np.log(1 / alpha) + np.log(total / variance) / 2))
