"""The decorator that compiles the loops over posting lists."""

from collections.abc import Callable
from typing import TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., object])


def jit(function: F) -> F:
    """Compiles to machine code that runs without the interpreter's lock.

    The code is cached on disk for later processes, if a folder for it is writable.
    """
    try:
        return cast(F, numba.njit(function, nogil=True, cache=True))
    except RuntimeError:  # neither the package's folder nor the user's cache folder is writable
        return cast(F, numba.njit(function, nogil=True))
