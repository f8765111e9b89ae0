"""The embedding model of the settings, loaded once and retried after temporary failures."""

from collections.abc import Callable, Sequence

import stamina

from rag_core.config import Settings
from rag_core.errors import ModelError
from rag_core.types import Matrix
from rag_core.wiring.embedding import Encoder, load_shared_encoder

_ATTEMPTS, _FIRST_WAIT, _MAX_WAIT = 4, 1.0, 60.0
"""Three retries, after 1, 2 and 4 seconds."""
_TEMPORARY_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})


def load_encoder(settings: Settings) -> Encoder:
    """The encoder that the process shares. Raises ModelError if it cannot be loaded."""
    try:
        return load_shared_encoder(settings.embedding)
    except (OSError, ValueError, RuntimeError) as error:
        raise ModelError(str(error)) from error


def embed_with_retries(embed: Callable[[Sequence[str]], Matrix], texts: Sequence[str]) -> Matrix:
    """Embeds the texts and retries temporary failures. Raises ModelError if the last attempt fails temporarily too."""
    try:
        return stamina.retry(
            on=is_transient, attempts=_ATTEMPTS, timeout=None, wait_initial=_FIRST_WAIT, wait_max=_MAX_WAIT
        )(embed)(texts)
    except Exception as error:
        if is_transient(error):
            raise ModelError(f"no answer after {_ATTEMPTS} attempts: {error}") from error
        raise


def is_transient(error: Exception) -> bool:
    """True if a later attempt can succeed: no connection, a timeout, or an HTTP status of a temporary failure."""
    status = getattr(error, "status_code", None) or getattr(getattr(error, "response", None), "status_code", None)
    return isinstance(error, ConnectionError | TimeoutError) or status in _TEMPORARY_STATUSES
