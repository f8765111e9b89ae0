"""Where a text that has to be cut is cut."""

import re
from collections.abc import Sequence

# More characters than this are cut however few tokens they are: a vocabulary may call any long word one unknown token.
CHARACTERS_A_TOKEN = 16
_SPACE = re.compile(r"\s*")


def cut_at_space(near: str, limit: int) -> int:
    """The last white space in the second half before `limit`, or else `limit`."""
    if near[limit : limit + 1].isspace():
        return limit
    space = max(near.rfind(mark, limit // 2, limit) for mark in " \n\t")
    return len(near[:space].rstrip()) if space > 0 else limit


def after_space(text: str, start: int, end: int) -> int:
    space = _SPACE.match(text, start, end)
    return space.end() if space else start


class Characters:
    """A tokenizer whose tokens are the characters: sizes that are counted in it are characters."""

    def lengths(self, texts: Sequence[str]) -> list[int]:
        return list(map(len, texts))

    def ends(self, text: str) -> list[int]:
        return list(range(1, len(text) + 1))
