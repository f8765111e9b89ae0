"""Exact BM25 and SPLADE in plain tables: immutable segments of postings, written with the documents, merged later."""
