"""Importing it imports Ray Serve, without the warnings that Ray's own code gives rise to."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import ray.serve  # noqa: F401
