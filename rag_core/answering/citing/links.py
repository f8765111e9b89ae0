"""The links that an answer may contain: http or https to an allowed host, in a form that all browsers read alike."""

import re
from collections.abc import Collection, Iterable

from rag_core.types import Passage

LINK_REMOVED = "(link removed)"

_PLAIN_URL = re.compile(
    r"https?://(?P<host>[a-z0-9-]+(?:\.[a-z0-9-]+)*)(?::\d{1,5})?"
    r"(?:[/?#](?:(?!://|(?<![a-z\d])www\.)[^\s\\`<>\"|\[\]])*)?",
    re.I | re.A,
)
_BALANCED_PARENTHESES = re.compile(r"(?:[^()]|\([^()]*+\))*+")


def url_host(url: str) -> str:
    """The host of an http or https URL, in lower case.

    Empty if the URL names a user, contains another URL or a character of Markdown's syntax, or if browsers read it
    differently.
    """
    match = _PLAIN_URL.fullmatch(url)
    return match["host"].lower() if match else ""


def is_allowed_url(url: str, hosts: Collection[str]) -> bool:
    """True if the URL leads to one of the hosts; a URL without a scheme counts as https."""
    return url_host(url if "://" in url else f"https://{url}") in hosts


def is_allowed_link_target(target: str, hosts: Collection[str]) -> bool:
    """True if the URL is allowed as the target of a Markdown link.

    Its parentheses must be balanced: an unbalanced one would end the link, and the rest would be parsed as Markdown.
    """
    return "://" in target and is_allowed_url(target, hosts) and bool(_BALANCED_PARENTHESES.fullmatch(target))


def passage_hosts(passages: Iterable[Passage]) -> dict[int, str]:
    """The host of each passage's document, by the passage's number; empty if its URI is not a plain http(s) URL."""
    return {passage.n: url_host(passage.hit.origin.uri) for passage in passages}
