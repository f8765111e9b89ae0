"""The builder of users' own objects: `{type: python, object: "acme.embedding:Mine", arguments: {...}}`."""

from importlib import import_module
from typing import Any

from rag_core.config import PythonObject
from rag_core.errors import ConfigError, translate_foreign_errors


def build_python_object(settings: PythonObject) -> Any:
    """Imports and calls the object. Raises ConfigError if that fails, except that a RagError passes unchanged."""
    module, _, name = settings.object.partition(":")
    with translate_foreign_errors(ConfigError, f"object {settings.object}: "):
        return getattr(import_module(module), name)(**settings.arguments)
