"""Translation of Ray's errors to those of `rag_core.errors`."""

from collections.abc import Iterator
from contextlib import contextmanager

from rag_core.errors import ClusterError, RagError, UnavailableError, error_from_reason, first_line

ERROR_PREFIX = f"{RagError.__module__}."
"""The text before the name of a RagError in a traceback."""


@contextmanager
def translate_ray_errors() -> Iterator[None]:
    """Raises a worker's RagError as the worker raised it, and ClusterError if Ray itself failed.

    Any other error is a defect, and keeps its traceback.
    """
    from ray.data.exceptions import ExecutionTimeoutError
    from ray.exceptions import ActorDiedError, RayError, RayTaskError

    try:
        yield
    except RayTaskError as error:
        if isinstance(error.cause, RagError):
            # Ray Data appends advice about retries to the message of every task error
            first, *others = error.cause.args or ("",)
            error.cause.args = (first.partition("\nFailed to apply")[0] if isinstance(first, str) else first, *others)
            raise error.cause from None
        if isinstance(error.cause, RayError):  # such as the loss of an object that the task needs
            raise _cluster_error(error.cause) from error
        raise
    except ActorDiedError as error:
        if failure := _error_from_traceback(str(error)):
            raise failure from error
        if "creation task" in str(error):  # Ray's words for a constructor that raised
            raise
        raise _cluster_error(error) from error
    except (RayError, ExecutionTimeoutError) as error:
        raise _cluster_error(error) from error


def _cluster_error(error: Exception) -> ClusterError:
    return ClusterError(f"Ray lost a part of the job: {first_line(error)}")


def _error_from_traceback(message: str) -> RagError | None:
    """The RagError at the end of a traceback, for example of an actor's constructor; None for other errors."""
    _, prefix, reason = message.rpartition(f"\n{ERROR_PREFIX}")
    failure = error_from_reason(reason.strip()) if prefix else None
    return None if type(failure) is UnavailableError else failure
