"""A knowledge base in Postgres that is synchronized with its sources, searched, and asked questions."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rag_core.knowledge_base import KnowledgeBase, open_knowledge_base

__all__ = ["KnowledgeBase", "open_knowledge_base"]
__version__ = (Path(__file__).parent / "VERSION").read_text().strip()


def __getattr__(name: str) -> Any:
    """Imports the knowledge base on first use, so that commands that only read the store do not load all modules."""
    if name in __all__:
        import rag_core.knowledge_base

        return getattr(rag_core.knowledge_base, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
