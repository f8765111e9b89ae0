"""Error messages for clients, without addresses, users and paths of the server, and without the text of foreign errors.

The logs have the original messages.
"""

import re
from collections.abc import Collection

STORE_UNREACHABLE = "the store cannot be reached"
HIDDEN = "***"
_STORE_ERROR = re.compile(r"(?:(?:cannot (?:use|reach|read from)|lost) the store|the embedded Postgres)\b.*", re.DOTALL)
_FOREIGN_ERROR = re.compile(r"\b([A-Z]\w*(?:Error|Exception|Timeout|Interrupt)): .*", re.DOTALL)
_ENDPOINT = re.compile(r"\b(the endpoint) \S+(?= (?:broke|cannot|must|refused|was)\b)")
_PLACE = re.compile(
    r"""\bhttps?://[^\s'",;)]+        # a URL
    | \b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b    # an IPv4 address
    | \[[0-9A-Fa-f]*:[0-9A-Fa-f:.]+\](?::\d+)?    # an IPv6 address
    | \b[\w.-]*[A-Za-z][\w.-]*:\d{2,5}\b(?!:)    # a name with a port, but not a time
    | (?<![\w/.:~*\#<-])~?(?:/[\w.@+=~-]+){2,}/?    # an absolute path
    """,
    re.VERBOSE,
)


def public_message(text: str) -> str:
    """Reduces foreign errors to their class names, because users' own models and legs can raise anything.

    Hides places of the server.
    """
    return hide_places(hide_foreign_text(text))


def hide_foreign_text(text: str) -> str:
    """`public_message` for a message that quotes the client's own text, which can be an address or a path."""
    return _FOREIGN_ERROR.sub(r"\1", hide_store(text))


def hide_places(text: str, known: Collection[str] = ()) -> str:
    """Hides addresses and paths of the server in an error, but not those in `known`, which the client has sent."""

    def hide(match: re.Match[str]) -> str:
        return match[0] if any(match[0] in place for place in known) else HIDDEN

    return _PLACE.sub(hide, _ENDPOINT.sub(r"\1", hide_store(text)))


def hide_store(text: str) -> str:
    """Replaces a Postgres error about an unreachable store, which contains the address and the user."""
    return _STORE_ERROR.sub(STORE_UNREACHABLE, text)
