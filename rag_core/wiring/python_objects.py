"""The builder of users' own objects: `{type: python, object: "acme.embedding:Mine", arguments: {...}}`."""

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from traceback import extract_tb
from typing import Any, Literal, TypeAlias

from rag_core.config import PythonObject
from rag_core.errors import ConfigError, RagError, describe_error

Role: TypeAlias = Literal["chunking", "embedding", "splade", "retrieval", "reranker", "generation", "guard.judge"]

MEMBERS: Mapping[Role, tuple[str, ...]] = {
    "chunking": ("split",),
    "embedding": ("embed", "embed_questions", "space", "tokenizer"),
    "splade": ("weigh", "weigh_questions", "fingerprint"),
    "retrieval": ("retrieve",),
    "reranker": ("score",),
    "generation": ("stream",),
    "guard.judge": ("judge",),
}
"""The methods and attributes of each role's object."""


def build_python_object(settings: PythonObject, role: Role) -> Any:
    """Imports and calls the object. Modules in the working directory are found, too, after all others.

    Raises ConfigError if that fails or if the object lacks a member of the role. A RagError passes unchanged.
    """
    module, _, name = settings.object.partition(":")
    _append_working_directory()
    try:
        built = getattr(import_module(module), name)(**settings.arguments)
    except RagError:
        raise
    except Exception as error:
        raise ConfigError(f"{role}: cannot build the object {settings.object}: {describe_failure(error)}") from error
    if missing := [member for member in MEMBERS[role] if not hasattr(built, member)]:
        raise ConfigError(
            f"{role}: the object {settings.object} must have {', '.join(MEMBERS[role])}, got {type(built).__name__} "
            f"without {', '.join(missing)}"
        )
    return built


def describe_failure(error: Exception) -> str:
    """The class, the message, and the file and line of an error in a user's own module."""
    *_, frame = extract_tb(error.__traceback__)
    return f"{describe_error(error)} ({Path(frame.filename).name}, line {frame.lineno})"


def _append_working_directory() -> None:
    """Appends it, because a module of the same name that is installed must win."""
    with suppress(OSError):  # the folder was deleted
        if (folder := os.getcwd()) not in sys.path:
            sys.path.append(folder)
