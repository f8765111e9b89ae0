"""The uris of members: that of the container, `!/`, and the quoted path of the member: `docs.zip!/guides/keys.md`.

Containers can be nested: `a.zip!/b.tar!/c.md`. A quoted path contains no `!`.
"""

import os
from collections.abc import Iterator
from urllib.parse import quote_from_bytes

from rag_core.parsing.container_names import container_suffix

SEPARATOR = "!/"


def member_uri(container: str, path: str) -> str:
    return f"{container}{SEPARATOR}{quote_from_bytes(os.fsencode(path))}"


def enclosing_uris(uri: str) -> Iterator[str]:
    """Yields the uris of the containers that a member is in, the innermost first."""
    end = uri.rfind(SEPARATOR)
    while end > 0:
        if container_suffix(uri[:end]):
            yield uri[:end]
        end = uri.rfind(SEPARATOR, 0, end)


def container_uri(uri: str) -> str:
    """The uri of the innermost container of a member; empty if it is not a member."""
    return next(enclosing_uris(uri), "")


def file_uri(uri: str) -> str:
    """The uri of the outermost container of a member, or the uri itself."""
    return [uri, *enclosing_uris(uri)][-1]
