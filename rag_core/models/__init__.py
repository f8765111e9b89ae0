"""What holds a model or asks one over HTTP, for whatever role."""
