"""Error messages that clients may read: without the store's address, its user, and the words of foreign errors."""

import re

STORE_UNREACHABLE = "the store cannot be reached"
_STORE = re.compile(r"(?:(?:cannot (?:use|reach|read from)|lost) the store|the embedded Postgres)\b.*", re.DOTALL)
_FOREIGN = re.compile(r"\b([A-Z]\w*(?:Error|Exception|Timeout|Interrupt)): .*", re.DOTALL)


def public_message(text: str) -> str:
    """Keeps only the class name of an error that is not ours: a user's own model or leg may raise anything."""
    return _FOREIGN.sub(r"\1", hide_store(text))


def hide_store(text: str) -> str:
    """Replaces what Postgres says of an unreachable store; the address and the user are in the log only."""
    return _STORE.sub(STORE_UNREACHABLE, text)
