"""What is embedded and shown before a chunk: title, headings, a cut table's header row."""

import re
from bisect import bisect_left
from collections.abc import Sequence

from rag_core.protocols import Tokenizer

_MARKS = "#*_ \t"
_WORD = re.compile(r"\S+")


def prefix(title: str, path: Sequence[str], header: str = "") -> str:
    return "\n".join(line for line in (title, " > ".join(path), header) if line)


def longest_prefix(title: str, path: tuple[str, ...]) -> str:
    """Of a chunk under that path, whatever its text says itself."""
    return prefix("" if _begins(path, title) else title, path)


def unsaid(title: str, path: tuple[str, ...], text: str) -> tuple[str, tuple[str, ...]]:
    """What of title and path the text does not begin with itself."""
    said = _begins(path, title) or text.lstrip(_MARKS).startswith(title)
    first_line = text.partition("\n")[0].strip(_MARKS)
    return "" if said else title, path[: path.index(first_line)] if first_line in path else path


def is_heading(text: str, path: Sequence[str]) -> bool:
    """Whether the text is the path's last heading and nothing else."""
    return bool(path) and text.strip(_MARKS) == path[-1]


def shortened(tokenizer: Tokenizer, title: str, path: Sequence[str], header: str, tokens: int) -> str:
    """The prefix, or the longest that fits: without its outermost headings, then without its first words."""
    longest = [prefix(title, path[first:], header) for first in range(max(1, len(path)))]
    candidates = [*longest, *_without_first_words(longest[-1], tokens)]
    fitting = bisect_left(candidates, True, key=lambda text: tokenizer.lengths([text])[0] <= tokens)
    return candidates[fitting] if fitting < len(candidates) else ""


def _begins(path: tuple[str, ...], title: str) -> bool:
    return path[:1] == (title,)


def _without_first_words(text: str, at_most: int) -> list[str]:
    starts = [word.start() for word in _WORD.finditer(text)]
    return [f"… {text[start:]}" for start in starts[1:][-at_most:]] if at_most else []
