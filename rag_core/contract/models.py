"""Models of the settings: loaded once, and asked again where that may help."""

from collections.abc import Callable, Sequence

import stamina

from rag_core.config import Settings
from rag_core.errors import ModelError
from rag_core.types import Matrix
from rag_core.wiring.embedding import Encoder, shared_encoder

# 3 retries, after 1, 2 and 4 seconds
_ATTEMPTS, _FIRST_WAIT, _LONGEST_WAIT = 4, 1.0, 60.0
_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})


def loaded_encoder(settings: Settings) -> Encoder:
    try:
        return shared_encoder(settings.embedding)
    except (OSError, ValueError, RuntimeError) as error:
        raise ModelError(str(error)) from error


def patiently(embed: Callable[[Sequence[str]], Matrix], texts: Sequence[str]) -> Matrix:
    """ModelError if the model stays busy or out of reach."""
    try:
        return stamina.retry(
            on=is_transient, attempts=_ATTEMPTS, timeout=None, wait_initial=_FIRST_WAIT, wait_max=_LONGEST_WAIT
        )(embed)(texts)
    except Exception as error:
        if is_transient(error):
            raise ModelError(f"it did not answer {_ATTEMPTS} times: {error}") from error
        raise


def is_transient(error: Exception) -> bool:
    """Whether the same may succeed a little later: no connection, no answer in time, or an HTTP status that says so."""
    status = getattr(error, "status_code", None) or getattr(getattr(error, "response", None), "status_code", None)
    return isinstance(error, ConnectionError | TimeoutError) or status in _BUSY
