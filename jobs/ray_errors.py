"""What goes wrong on Ray, under the names of `rag_core.errors`."""

from collections.abc import Iterator
from contextlib import contextmanager

from rag_core.errors import ClusterError, RagError, UnavailableError, error_from_reason

OURS = f"{RagError.__module__}."
"""Before the name of a failure in a traceback."""


@contextmanager
def errors_as_raised() -> Iterator[None]:
    """A worker's failure as it raised it, and ClusterError where Ray itself failed. What is no failure of ours, and no
    Ray's, is a defect: it goes on with its traceback."""
    from ray.data.exceptions import ExecutionTimeoutError
    from ray.exceptions import ActorDiedError, RayError, RayTaskError

    try:
        yield
    except RayTaskError as error:
        if isinstance(error.cause, RagError):
            raise _without_advice(error.cause) from None
        raise
    except ActorDiedError as error:
        if failure := _raised_in(str(error)):
            raise failure from error
        if "creation task" in str(error):  # Ray's words for a constructor that raised
            raise
        raise _lost(error) from error
    except (RayError, ExecutionTimeoutError) as error:
        raise _lost(error) from error


def _without_advice(error: RagError) -> RagError:
    """Ray Data adds to the words of whatever ends a task how it could be tried again."""
    first, *others = error.args or ("",)
    error.args = (first.partition("\nFailed to apply")[0] if isinstance(first, str) else first, *others)
    return error


def _lost(error: Exception) -> ClusterError:
    return ClusterError(f"Ray lost a part of the job: {str(error).strip().partition(chr(10))[0]}")


def _raised_in(message: str) -> RagError | None:
    """Our own failure at the end of a traceback, such as of an actor's constructor."""
    _, found, raised = message.rpartition(f"\n{OURS}")
    failure = error_from_reason(raised.strip()) if found else None
    return None if type(failure) is UnavailableError else failure
