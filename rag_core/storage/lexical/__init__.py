"""Exact BM25 in plain tables: immutable segments of posting lists, written with the documents and merged later."""
