"""Documents are stored by names; the store knows collections."""

import re

_NAME = re.compile(r"\w[\w.-]{0,62}")


def collection_of(name: str) -> str:
    """ValueError for a name that is no word."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"name must be a word of letters, digits, `_`, `-` and `.`, at most 63 long, got {name!r}")
    return f"docs_{name}"
