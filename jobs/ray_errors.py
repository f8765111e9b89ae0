"""What goes wrong on Ray, under the names of `rag_core.errors`."""

from collections.abc import Iterator
from contextlib import contextmanager

from rag_core.errors import ClusterError, RagError, UnavailableError, told


@contextmanager
def errors_as_raised() -> Iterator[None]:
    """A worker's failure as it raised it, and ClusterError where Ray itself failed. What is no failure of ours, and no
    Ray's, is a defect: it goes on with its traceback."""
    from ray.exceptions import ActorDiedError, RayError, RayTaskError

    try:
        yield
    except RayTaskError as error:
        if isinstance(error.cause, RagError):
            raise error.cause from None
        raise
    except ActorDiedError as error:
        raise _of_dead_actor(str(error)) from error
    except RayError as error:
        raise ClusterError(f"Ray lost a part of the job: {str(error).strip().partition(chr(10))[0]}") from error


def _of_dead_actor(message: str) -> RagError:
    """Why its constructor failed stands at the end, as a traceback has it."""
    last = message.strip().splitlines()[-1]
    kind, colon, reason = last.partition(": ")
    failure = told(f"{kind.rpartition('.')[2]}: {reason}") if colon else None
    return failure if failure and type(failure) is not UnavailableError else ClusterError(f"an actor died: {last}")
