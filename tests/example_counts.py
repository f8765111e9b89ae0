"""The number of examples that Hypothesis tries: some of them every day, all of them before a release."""

import os

ALL = "ALL_EXAMPLES"
"""The environment variable with which every example is tried."""


def scale_examples(count: int) -> int:
    """A quarter of the examples, but at least 5, unless all are requested."""
    return count if os.environ.get(ALL) else max(count // 4, 5)
