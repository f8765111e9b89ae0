"""How the loops over posting lists are compiled."""

from collections.abc import Callable
from typing import TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """Without the interpreter's lock; kept on disk for the next process, where there is a place for it."""
    try:
        return cast(F, numba.njit(function, nogil=True, cache=True))
    except RuntimeError:  # neither the package's folder nor the user's can be written to
        return cast(F, numba.njit(function, nogil=True))
