"""Objects of the user's own: `{type: python, object: "acme.embedding:Mine", arguments: {...}}`."""

from importlib import import_module
from typing import Any

from rag_core.config import PythonObject
from rag_core.errors import ConfigError


def python_object(settings: PythonObject) -> Any:
    """ConfigError if it cannot be imported or does not take the arguments."""
    module, _, name = settings.object.partition(":")
    try:
        return getattr(import_module(module), name)(**settings.arguments)
    except (ImportError, AttributeError, TypeError) as error:
        raise ConfigError(f"object {settings.object}: {error}") from error
