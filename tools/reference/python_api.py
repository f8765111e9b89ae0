"""The page of the Python API, from signatures and docstrings."""

import ast
import inspect
from collections.abc import Iterator
from textwrap import dedent
from typing import Any

from rag_core import KnowledgeBase, contract, open_knowledge_base
from rag_core.contract import GeneratedResponse, QueryOptions, RetrievalResult
from rag_core.ingestion.report import SyncReport
from rag_core.ingestion.sync import SyncOptions
from rag_core.types import Answer, Chunk, Citation, Hit, Origin, Passage, Reply, StageReport, Verdict
from tools.reference.markdown import table

INTRODUCTION = """\
# Python

`open_knowledge_base` opens a knowledge base. Its methods do in this process what the commands of these
names do. All errors are subclasses of `rag_core.errors.RagError`, and their messages are for users.

```python
from rag_core import open_knowledge_base

with open_knowledge_base() as kb:
    report = kb.ingest("demo/corpus")
    print(report.documents["listed"], "documents")
    hits = kb.search("signing keys", k=3, filters={"key": "language", "type": "eq", "value": "en"})
    print(hits[0].origin.title, hits[0].chunk.text[:30])
```
"""
STAGES = """\
## The stages as functions

`rag_core.contract` has the pipeline as plain functions, which raise built-in exceptions.
[Call the stages as functions](../how-to/functions.md) has an example.
"""
VALUES = (SyncOptions, SyncReport, Hit, Chunk, Origin, Reply, Answer, Citation, Verdict, Passage, StageReport)


def render_python() -> str:
    stages = filter(inspect.isfunction, (getattr(contract, name) for name in contract.__all__))
    return "\n".join(
        [
            INTRODUCTION,
            *_render_functions(),
            STAGES,
            *map(_render_stage, stages),
            *map(_render_value, (QueryOptions, RetrievalResult, GeneratedResponse)),
            "## Values\n",
            *map(_render_value, VALUES),
        ]
    )


def _render_functions() -> Iterator[str]:
    """Yields a section per function: how to call it, and its docstring."""
    methods = [member for name, member in vars(KnowledgeBase).items() if not name.startswith("_")]
    for function in (open_knowledge_base, *filter(inspect.isfunction, methods)):
        owner = "" if function is open_knowledge_base else "kb."
        yield f"## {owner}{function.__name__}\n\n`{owner}{_signature(function)}`\n"
        yield f"{inspect.getdoc(function) or ''}\n"


def _render_stage(function: Any) -> str:
    return f"### {function.__name__}\n\n`{_signature(function)}`\n\n{inspect.getdoc(function)}\n"


def _signature(function: Any) -> str:
    """The signature as the source code has it, without `self`, and with numbers and texts instead of their names."""
    definition = _parse(function)
    arguments, returns = definition.args, definition.returns
    arguments.args = [argument for argument in arguments.args if argument.arg != "self"]
    values = [each.default for each in inspect.signature(function).parameters.values()][-len(arguments.defaults) :]
    arguments.defaults = [
        ast.Constant(value) if isinstance(value, int | str) else written
        for value, written in zip(values, arguments.defaults, strict=False)
    ]
    returned = ast.unparse(returns).strip("'") if returns else ""
    return f"{definition.name}({ast.unparse(arguments)}) -> {returned}"


def _render_value(value: Any) -> str:
    declarations = [line for line in _parse(value).body if isinstance(line, ast.AnnAssign)]
    rows = [(f"`{ast.unparse(line.target)}`", f"`{ast.unparse(line.annotation)}`") for line in declarations]
    return f"### {value.__name__}\n\n{inspect.getdoc(value) or ''}\n\n{table(('field', 'type'), rows)}"


def _parse(definition: Any) -> Any:
    """The syntax tree of a function or class."""
    return ast.parse(dedent(inspect.getsource(definition))).body[0]
