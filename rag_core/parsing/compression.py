"""Compressed documents."""

import gzip
import zlib
from io import BytesIO

from rag_core.errors import DocumentError

_SUFFIX = ".gz"
_STEP = 1 << 20


def decompressed(uri: str, body: bytes, limit_mb: float) -> tuple[str, bytes]:
    """The uri without `.gz` and what was inside; both as given where the uri does not end so."""
    if not is_compressed(uri):
        return uri, body
    try:
        return inner(uri), _inflated(body, limit_mb)
    except (OSError, EOFError, zlib.error) as error:
        raise DocumentError("parse", f"damaged gzip: {error}") from error


def is_compressed(uri: str) -> bool:
    return uri.lower().endswith(_SUFFIX)


def inner(uri: str) -> str:
    return uri[: -len(_SUFFIX)] if is_compressed(uri) else uri


def _inflated(body: bytes, limit_mb: float) -> bytes:
    out = bytearray()
    with gzip.GzipFile(fileobj=BytesIO(body)) as file:
        while piece := file.read(_STEP):
            out += piece
            if len(out) > limit_mb * 1e6:
                raise DocumentError("parse", f"too large: more than {limit_mb:g} MB when decompressed")
    return bytes(out)
