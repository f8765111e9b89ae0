"""Rerankers: a second look at the few chunks that were found, by question and text alone."""
