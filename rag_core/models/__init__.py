"""Models that this process loads, and clients of models that it reaches over HTTP."""
