"""A Postgres knowledge base that is kept in step with its sources, and searched."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rag_core.knowledge_base import KnowledgeBase, open_knowledge_base

__all__ = ["KnowledgeBase", "open_knowledge_base"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Late, because a command that only reads the store should not pay for the whole library."""
    if name in __all__:
        import rag_core.knowledge_base

        return getattr(rag_core.knowledge_base, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
