"""The prefix of a chunk, embedded and shown with it: title, headings, the header row of a cut table."""

import re
from bisect import bisect_left
from collections.abc import Sequence

from rag_core.protocols import Tokenizer
from rag_core.types import MAX_HEADER_CHARS

CACHED_PREFIXES = 256
"""The prefixes that a chunker keeps: all chunks of one table have the same."""
_MARKS = "#*_ \t"
_WORD = re.compile(r"\S+")


def build_prefix(title: str, path: Sequence[str], header: str = "") -> str:
    return "\n".join(line for line in (title, " > ".join(path), header) if line)


def longest_prefix(title: str, name_words: str, path: tuple[str, ...]) -> str:
    """The longest prefix of a chunk under that path: its text repeats none of the headings."""
    return build_prefix(*omit_repeated(title, name_words, path, ""))


def omit_repeated(title: str, name_words: str, path: tuple[str, ...], text: str) -> tuple[str, tuple[str, ...]]:
    """Title and path without what the text itself begins with. The words of the file's name are below the title."""
    is_repeated = _begins_with(path, title) or text.lstrip(_MARKS).startswith(title)
    first_line = text.partition("\n")[0].strip(_MARKS)
    remaining = path[: path.index(first_line)] if first_line and first_line in path else path
    if name_words and _begins_with(remaining, title):
        return f"{title}\n{name_words}", remaining[1:]
    return "\n".join(filter(None, ("" if is_repeated else title, name_words))), remaining


def is_heading(text: str, path: Sequence[str]) -> bool:
    """True if the text is the path's last heading, without further text."""
    return bool(path) and text.strip(_MARKS) == path[-1]


def fit_prefix(tokenizer: Tokenizer, tokens: int, title: str, path: tuple[str, ...], header: str) -> str:
    """The prefix, shortened to at most `tokens`.

    First it loses all lines of the title except the first, then its outermost headings, then its first words.
    """
    header, first_line = header[:MAX_HEADER_CHARS], title.partition("\n")[0]
    candidates = [build_prefix(title, path, header)]
    candidates += [build_prefix(first_line, path[first:], header) for first in range(max(1, len(path)))]
    if tokens:
        shortest = candidates[-1]
        starts = [word.start() for word in _WORD.finditer(shortest)]
        candidates += [f"… {shortest[start:]}" for start in starts[1:][-tokens:]]
    fitting = bisect_left(candidates, True, key=lambda text: tokenizer.lengths([text])[0] <= tokens)
    return candidates[fitting] if fitting < len(candidates) else ""


def _begins_with(path: tuple[str, ...], title: str) -> bool:
    return path[:1] == (title,)
