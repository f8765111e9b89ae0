"""The rules for running a node: skipping it, retrying it, and the errors that it raises."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from typing import Any, Protocol, TypeAlias, TypeVar

import stamina

from rag_core.contract.indexing import builtin_errors, is_transient
from rag_core.contract.nodes.node_config import NodeConfig, RetryConfig
from rag_core.errors import BusyError, OverloadedError, StoreError, UnavailableError, UsageError

Inputs: TypeAlias = Mapping[str, Any]
Outputs: TypeAlias = dict[str, Any]

_FIRST_WAIT = 1.0
_log = logging.getLogger(__name__)


class Node(Protocol):
    @property
    def config(self) -> NodeConfig: ...


N = TypeVar("N", bound=Node)
Run: TypeAlias = Callable[[N, Inputs], Awaitable[Outputs]]


def as_node(skip: Callable[[Inputs], Outputs]) -> Callable[[Run[N]], Run[N]]:
    """Decorates the method `run`: it retries temporary failures, and a node that is not enabled returns `skip(inputs)`.

    The method raises ValueError for wrong inputs, and RuntimeError if the work fails.
    """

    def decorate(run: Run[N]) -> Run[N]:
        @wraps(run)
        async def run_node(node: N, inputs: Inputs) -> Outputs:
            config = node.config
            if not config.enabled:
                _log.info("skipped the node %s (%s): it is not enabled", config.name, config.node_type)
                return skip(inputs)
            with builtin_errors(f"the node {config.name} failed"):
                return await _run_with_retries(node, run, inputs)

        return run_node

    return decorate


def read_input(inputs: Inputs, name: str) -> Any:
    """Raises UsageError if the input is missing."""
    if name not in inputs:
        raise UsageError(f"inputs must have {name!r}, got {', '.join(inputs) or 'none'}")
    return inputs[name]


def retry_rules(config: RetryConfig) -> dict[str, Any]:
    """The arguments of stamina's functions."""
    return {
        "attempts": config.max_retries + 1,
        "timeout": None,
        "wait_initial": min(_FIRST_WAIT, config.max_delay),
        "wait_max": config.max_delay,
        "wait_exp_base": config.backoff_base,
    }


async def _run_with_retries(node: N, run: Run[N], inputs: Inputs) -> Outputs:
    """Raises UnavailableError if the last attempt fails temporarily, too, with an error that is not a RagError."""
    config = node.config.retry_config
    try:
        return await stamina.retry(on=_is_temporary, **retry_rules(config))(run)(node, inputs)
    except Exception as error:
        if is_transient(error):
            raise UnavailableError(f"no answer after {config.max_retries + 1} attempts: {error}") from error
        raise


def _is_temporary(error: Exception) -> bool:
    return isinstance(error, StoreError | BusyError | OverloadedError) or is_transient(error)
