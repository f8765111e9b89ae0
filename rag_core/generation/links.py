"""Where an answer may link to: a known host, by http or https, written so that no browser reads it otherwise."""

import re
from collections.abc import Collection, Iterable

from rag_core.types import Passage

REMOVED = "(link removed)"

_PLAIN_URL = re.compile(
    r"https?://(?P<host>[a-z0-9-]+(?:\.[a-z0-9-]+)*)(?::\d{1,5})?(?:[/?#](?:(?!://)[^\s\\`<>\"])*)?", re.I | re.A
)


def host_of(url: str) -> str:
    """In lower case; empty of a URL with a user, another scheme, a URL within, or what browsers read variously."""
    found = _PLAIN_URL.fullmatch(url)
    return found["host"].lower() if found else ""


def allowed(url: str, hosts: Collection[str]) -> bool:
    return host_of(url if "://" in url else f"https://{url}") in hosts


def origins(passages: Iterable[Passage]) -> frozenset[str]:
    """The hosts of the documents that these passages stand in."""
    return frozenset(filter(None, (host_of(passage.hit.origin.uri) for passage in passages)))
