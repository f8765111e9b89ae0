"""Files that hold one retriever, in this program's own shape or in a foreign one."""

from collections.abc import Mapping
from typing import Any

from rag_core.config_import.notices import retriever_notices
from rag_core.config_import.shapes import read_foreign_config
from rag_core.config_import.target import Target
from rag_core.config_import.translation import SettingsTree, translate_retriever
from rag_core.errors import ConfigError

OWN_SECTIONS = ("retrieval", "splade", "graph")


def read_retriever(tree: Mapping[str, Any], target: Target) -> tuple[SettingsTree, list[str]]:
    """The sections of settings that the file describes, and the notices about its translation.

    Raises ConfigError if the file has neither `retrieval` nor `retriever`, or sections that do not belong to a search.
    """
    if "retrieval" in tree:
        if unknown := sorted(tree.keys() - set(OWN_SECTIONS)):
            raise ConfigError(
                f"a file with a retriever can have {', '.join(OWN_SECTIONS)}, got {', '.join(unknown)}; pass all other "
                "settings with --config"
            )
        return dict(tree), []
    retriever = read_foreign_config(tree).retriever
    if retriever is None:
        raise ConfigError(f"a file with a retriever must have retrieval or retriever, got {', '.join(tree)}")
    return translate_retriever(retriever, target), list(retriever_notices(retriever, target))
