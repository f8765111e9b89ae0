"""One log line for each stage of the pipeline: its input, its duration, its results, its warnings and its error."""

import inspect
import logging
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar
from uuid import uuid4

from rag_core.errors import RagError, describe_error
from rag_core.settings import load_settings
from rag_core.telemetry.logs import QueryMode, hide_query, query_hash
from rag_core.telemetry.scrubbing import scrub_text

P = ParamSpec("P")
T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Stage:
    """A running stage. The stages of one question share its `query_id` and its `query_mode`."""

    name: str
    query_id: str
    query_mode: QueryMode
    results: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


_running: ContextVar[_Stage | None] = ContextVar("running_stage", default=None)


def log_stage(name: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """A decorator that logs each call as a stage of this name at level INFO, including when it raises an error.

    The line describes the arguments `question` or `query`, and `name` or the file's name. A call inside a stage of the
    same name is part of that stage.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        signature = inspect.signature(function)

        @wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> T:
            outer = _running.get()
            if outer and outer.name == name:
                return function(*args, **kwargs)
            arguments = signature.bind(*args, **kwargs).arguments
            stage = _begin_stage(name, outer)
            token, started, error = _running.set(stage), time.perf_counter(), ""
            try:
                return function(*args, **kwargs)
            except Exception as raised:
                error = describe_error(raised)
                raise
            finally:
                _running.reset(token)
                _log_line(stage, arguments, time.perf_counter() - started, error)

        return run

    return decorate


def count_results(**counts: int) -> None:
    """Adds counts, such as `vector_results`, to the line of the running stage."""
    if stage := _running.get():
        stage.results |= counts


def warn(message: str) -> None:
    """Logs a warning. The line of the running stage repeats it."""
    _log.warning("%s", message)
    if stage := _running.get():
        stage.warnings.append(message)


def _begin_stage(name: str, outer: _Stage | None) -> _Stage:
    if outer:
        return _Stage(name, outer.query_id, outer.query_mode)
    return _Stage(name, str(uuid4()), _read_query_mode())


def _read_query_mode() -> QueryMode:
    """The setting `telemetry.log_queries`; `hash` if nothing is logged or the settings cannot be loaded."""
    if not _log.isEnabledFor(logging.INFO):
        return "hash"
    try:
        return load_settings().telemetry.log_queries
    except RagError:
        return "hash"


def _log_line(stage: _Stage, arguments: Mapping[str, Any], seconds: float, error: str) -> None:
    if not _log.isEnabledFor(logging.INFO):
        return
    question = str(arguments.get("question") or arguments.get("query") or "")
    file = str(arguments.get("file_path") or arguments.get("path") or "")
    has_query = bool({"question", "query", "query_embedding"} & arguments.keys())
    fields = {
        "stage": stage.name,
        "query_id": stage.query_id if has_query else "",
        "question": _describe_question(question, stage.query_mode),
        "document_name": arguments.get("name") or Path(file).name,
        "duration_ms": round(1000 * seconds, 1),
        **stage.results,
        "warnings": [hide_query(warning, question) for warning in stage.warnings],
        "error": hide_query(error, question),
    }
    _log.info("contract stage", extra={key: value for key, value in fields.items() if value not in ("", [])})


def _describe_question(question: str, mode: QueryMode) -> str:
    if not question:
        return ""
    return scrub_text(question) if mode == "full" else query_hash(question)
