"""Answers, chunks and verdicts as readable HTML, and charts of reports, for notebooks.

Every view has a plain text, too, which terminals print. The charts require matplotlib: the extra `[notebooks]`.
"""
