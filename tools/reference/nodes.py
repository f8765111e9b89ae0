"""The page of the node interface, from the classes of `rag_core.contract.nodes` and `rag_core.hyperkb`."""

import ast
import inspect
from textwrap import dedent
from typing import Any

from pydantic import BaseModel

from rag_core import hyperkb
from rag_core.contract import nodes
from tools.reference.markdown import property_rows, table

INTRODUCTION = """\
# Nodes

The classes of `rag_core.contract.nodes`. Every node has a configuration, here with its own fields, and one method,
`async def run(inputs) -> dict`. [Code written for the node interface](../how-to/nodes.md) shows how to use them.

All configurations also have the fields of [NodeConfig](#nodeconfig). A configuration cannot be changed, and one that
breaks a rule raises `pydantic.ValidationError`, with the field, the rule and the value. `run` raises ValueError for
wrong inputs, and RuntimeError if the work fails.
"""
HYPERKB = """\
## Hyper-KB

The classes of `rag_core.hyperkb`.
"""
VALUES = ("NodeConfig", "RetryConfig", "LLMConfig", "Session", "Turn")
_COMMON = frozenset(nodes.NodeConfig.model_fields)
_HEADINGS = ("field", "type", "default")


def render_nodes() -> str:
    names = [name for name in nodes.__all__ if name.endswith("Node")]
    sections = [_render_node(name) for name in names]
    values = [_render_model(getattr(nodes, name)) for name in VALUES]
    classes = [_render_class(getattr(hyperkb, name)) for name in hyperkb.__all__]
    return "\n".join([INTRODUCTION, *sections, "## Values\n", *values, HYPERKB, *classes])


def _render_node(name: str) -> str:
    config: type[BaseModel] = getattr(nodes, f"{name.removesuffix('Node')}Config")
    rows = _field_rows(config, _COMMON)
    meaning = f"{_explanation(config)}\n\n" if rows and _explanation(config) else ""
    fields = f"{meaning}{table(_HEADINGS, rows)}" if rows else "It has no fields of its own.\n"
    return f"## {name}\n\n{inspect.getdoc(getattr(nodes, name))}\n\n`{config.__name__}`: {fields}"


def _render_model(model: type[BaseModel]) -> str:
    meaning = f"{_explanation(model)}\n\n" if _explanation(model) else ""
    return f"### {model.__name__}\n\n{meaning}{table(_HEADINGS, _field_rows(model, frozenset()))}"


def _render_class(kind: type[Any]) -> str:
    """The signatures of the class and its public methods, as the source code has them."""
    lines = list(ast.walk(ast.parse(dedent(inspect.getsource(kind)))))
    fields = [ast.unparse(line) for line in lines if isinstance(line, ast.AnnAssign)]
    methods = [line for line in lines if isinstance(line, ast.FunctionDef) and not line.name.startswith("_")]
    parts = [f"### {kind.__name__}\n\n`{kind.__name__}({', '.join(fields)})`\n\n{inspect.getdoc(kind)}\n"]
    for method in methods:
        signature = f"{method.name}({ast.unparse(method.args)}) -> {ast.unparse(method.returns or ast.Constant(None))}"
        parts.append(f"`{signature}`\n\n{inspect.cleandoc(ast.get_docstring(method) or '')}\n")
    return "\n".join(parts)


def _explanation(model: type[BaseModel]) -> str:
    """The docstring of the class, or else of the class whose fields it has, but not pydantic's."""
    documented = (kind.__doc__ for kind in model.__mro__ if kind.__doc__ and kind.__module__.startswith("rag_core"))
    return inspect.cleandoc(next(documented, ""))


def _field_rows(model: type[BaseModel], without: frozenset[str]) -> list[tuple[str, ...]]:
    rows = property_rows(model.model_json_schema())
    return [row[:3] for row in rows if row[0].strip("`") not in without]
