"""Where an answer may link to: a known host, by http or https, written so that no browser reads it otherwise."""

import re
from collections.abc import Collection, Iterable

from rag_core.types import Passage

REMOVED = "(link removed)"

_PLAIN_URL = re.compile(
    r"https?://(?P<host>[a-z0-9-]+(?:\.[a-z0-9-]+)*)(?::\d{1,5})?"
    r"(?:[/?#](?:(?!://|(?<![a-z\d])www\.)[^\s\\`<>\"|\[\]])*)?",
    re.I | re.A,
)
_BALANCED = re.compile(r"(?:[^()]|\([^()]*+\))*+")


def host_of(url: str) -> str:
    """In lower case; empty of a URL with a user, another scheme, a URL within, Markdown's own characters, or what
    browsers read variously."""
    found = _PLAIN_URL.fullmatch(url)
    return found["host"].lower() if found else ""


def allowed(url: str, hosts: Collection[str]) -> bool:
    return host_of(url if "://" in url else f"https://{url}") in hosts


def linkable(target: str, hosts: Collection[str]) -> bool:
    """In Markdown, where a parenthesis that nothing opened would end it, and what follows would be read anew."""
    return "://" in target and allowed(target, hosts) and bool(_BALANCED.fullmatch(target))


def origins(passages: Iterable[Passage]) -> dict[int, str]:
    """By each passage's number the host of its document; empty where it has none."""
    return {passage.n: host_of(passage.hit.origin.uri) for passage in passages}
