"""Documents that are compressed with gzip."""

import gzip
import zlib
from io import BytesIO

from rag_core.errors import DocumentError
from rag_core.parsing.container_names import container_suffix

_SUFFIX = ".gz"
_BLOCK_BYTES = 1 << 20


def decompress(uri: str, body: bytes, limit_mb: float) -> tuple[str, bytes]:
    """The uri without `.gz` and the decompressed body; both unchanged if the uri does not end with `.gz`.

    Raises DocumentError if the body is damaged or larger than the limit.
    """
    if not is_compressed(uri):
        return uri, body
    content = bytearray()
    try:
        with gzip.GzipFile(fileobj=BytesIO(body)) as file:
            while block := file.read(_BLOCK_BYTES):
                content += block
                if len(content) > limit_mb * 1e6:
                    raise DocumentError("parse", f"too large: more than {limit_mb:g} MB when decompressed")
    except (OSError, EOFError, zlib.error) as error:
        raise DocumentError("parse", f"damaged gzip: {error}") from error
    return strip_gz_suffix(uri), bytes(content)


def is_compressed(uri: str) -> bool:
    """True for a document with the suffix `.gz`. A container such as `.tar.gz` is not one document."""
    return uri.lower().endswith(_SUFFIX) and not container_suffix(uri)


def strip_gz_suffix(uri: str) -> str:
    return uri[: -len(_SUFFIX)] if is_compressed(uri) else uri
