"""The builder of users' own objects: `{type: python, object: "acme.embedding:Mine", arguments: {...}}`."""

import os
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from traceback import extract_tb
from typing import Any, Literal, TypeAlias

from rag_core.config import PythonObject
from rag_core.errors import ConfigError, RagError, describe_error

Role: TypeAlias = Literal["chunking", "embedding", "splade", "retrieval", "reranker", "generation", "guard.judge"]


def build_python_object(settings: PythonObject, role: Role, *members: str) -> Any:
    """Imports and calls the object. Modules in the working directory are found, too, after all others.

    Raises ConfigError if that fails or if the object lacks one of the `members`. A RagError passes unchanged.
    """
    module, _, name = settings.object.partition(":")
    _append_working_directory()
    try:
        built = getattr(import_module(module), name)(**settings.arguments)
    except RagError:
        raise
    except Exception as error:
        hint = "; start the command in the folder of the module, or install it"
        reason = describe_failure(error) + (hint if isinstance(error, ModuleNotFoundError) else "")
        raise ConfigError(f"{role}: cannot build the object {settings.object}: {reason}") from error
    if missing := [member for member in members if not hasattr(built, member)]:
        raise ConfigError(
            f"{role}: the object {settings.object} must have {', '.join(members)}, got {type(built).__name__} "
            f"without {', '.join(missing)}"
        )
    return built


def describe_failure(error: Exception) -> str:
    """The class and the message of an error, and the file and line if it is in a user's own module."""
    *_, frame = extract_tb(error.__traceback__)
    is_own = frame.filename != __file__ and not frame.filename.startswith("<")  # not the import system's
    return describe_error(error) + (f" ({Path(frame.filename).name}, line {frame.lineno})" if is_own else "")


def _append_working_directory() -> None:
    """Appends it, because a module of the same name that is installed must win."""
    with suppress(OSError):  # the folder was deleted
        if (folder := os.getcwd()) not in sys.path:
            sys.path.append(folder)
