"""The collection that holds the documents stored under a name."""

import re

_NAME = re.compile(r"\w[\w.-]{0,62}")


def collection_name(name: str) -> str:
    """Returns `docs_{name}`. Raises ValueError if the name is not a word."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"name must be a word of letters, digits, `_`, `-` and `.`, at most 63 characters, got {name!r}"
        )
    return f"docs_{name}"
