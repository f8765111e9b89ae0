"""The number of examples that Hypothesis tries: all of them in CI, some of them in everyday runs."""

import os

ALL = "ALL_EXAMPLES"
"""The environment variable with which every example is tried, as `.ci/run` does."""


def scale_examples(count: int) -> int:
    """A quarter of the examples, but at least 5, unless all were asked for."""
    return count if os.environ.get(ALL) else max(count // 4, 5)
