"""Imports Ray Serve without the warnings that Ray's own code causes."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import ray.serve  # noqa: F401
