"""The points at which a text that is too long is cut."""

import re
from collections.abc import Sequence

# A longer text is cut even if it has few tokens: a vocabulary can count a word of any length as one unknown token.
MAX_CHARS_PER_TOKEN = 16
NEAR_CHARS_PER_TOKEN = (2, 6, MAX_CHARS_PER_TOKEN)
"""The characters that are tokenized to find a cut, per token of its limit: more of them if fewer are not enough."""
_SPACE = re.compile(r"\s*")


def find_cut(text: str, limit: int) -> int:
    """The last white space in the second half of the characters before `limit`; `limit` if there is none."""
    if text[limit : limit + 1].isspace():
        return limit
    space = max(text.rfind(mark, limit // 2, limit) for mark in " \n\t")
    return len(text[:space].rstrip()) if space > 0 else limit


def fitting_end(text: str, ends: Sequence[int], tokens: int) -> int:
    """The end of the longest beginning of the text that has at most `tokens` tokens.

    `ends` are the ends of all tokens of the text. A character can have several. If it does not fit with all of them,
    the beginning ends before it, unless it is the first character.
    """
    if len(ends) <= tokens:
        return len(text)
    end = ends[tokens - 1]
    if ends[tokens] > end:
        return end
    return max((earlier for earlier in ends[:tokens] if earlier < end), default=end)


def skip_space(text: str, start: int, end: int) -> int:
    """The first position in [start, end) that is not white space; `end` if there is none."""
    space = _SPACE.match(text, start, end)
    return space.end() if space else start


class CharacterTokenizer:
    """A tokenizer whose tokens are characters, for chunk sizes in characters."""

    def lengths(self, texts: Sequence[str]) -> list[int]:
        return list(map(len, texts))

    def ends(self, text: str) -> list[int]:
        return list(range(1, len(text) + 1))
