"""Objects of the user's own: `{type: python, object: "acme.embedding:Mine", arguments: {...}}`."""

from importlib import import_module
from typing import Any

from rag_core.config import PythonObject
from rag_core.errors import ConfigError, RagError


def python_object(settings: PythonObject) -> Any:
    """ConfigError if it cannot be imported or made with the arguments, unless it gives its error a name of ours."""
    module, _, name = settings.object.partition(":")
    try:
        return getattr(import_module(module), name)(**settings.arguments)
    except RagError:
        raise
    except Exception as error:  # what a module of anybody's own raises has no common root
        raise ConfigError(f"object {settings.object}: {type(error).__name__}: {error}") from error
