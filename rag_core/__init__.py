"""A Postgres knowledge base that is kept in step with its sources, and searched."""

__version__ = "0.1.0"
