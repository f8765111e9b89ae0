"""Error messages for clients, without the addresses of the store and of endpoints, and without foreign errors' text."""

import re

STORE_UNREACHABLE = "the store cannot be reached"
_STORE_ERROR = re.compile(r"(?:(?:cannot (?:use|reach|read from)|lost) the store|the embedded Postgres)\b.*", re.DOTALL)
_ENDPOINT = re.compile(r"\bthe endpoint \S+(?= (?:broke off|cannot|ended|must|refused|sent|was)\b)")
_FOREIGN_ERROR = re.compile(r"\b([A-Z]\w*(?:Error|Exception|Timeout|Interrupt)): .*", re.DOTALL)


def public_message(text: str) -> str:
    """Removes the addresses of endpoints, and reduces foreign errors to their class names.

    The errors of users' own models and legs can contain anything.
    """
    return _FOREIGN_ERROR.sub(r"\1", _ENDPOINT.sub("the endpoint", hide_store(text)))


def hide_store(text: str) -> str:
    """Replaces a Postgres error about an unreachable store, which contains the address and the user."""
    return _STORE_ERROR.sub(STORE_UNREACHABLE, text)
