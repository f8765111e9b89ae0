"""Exact BM25 and SPLADE in plain tables: immutable segments of postings, published with the documents, merged later."""
