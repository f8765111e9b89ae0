"""The grouping of sentences into chunks: pure functions of their lengths and sections."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from rag_core.types import Section


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """A span that is not cut further. `section` is an index; `header` is the first row of the table it continues.

    `header_tokens` are the tokens of the header that exceed the limit of a prefix: a chunk that begins here has less
    room by them.
    """

    start: int
    end: int
    tokens: int
    section: int
    header: str = ""
    header_tokens: int = 0


def merge_sections(sentences: Sequence[Sentence], sections: Sequence[Section], tokens: int) -> list[list[Sentence]]:
    """One group for each section. A section below tokens / 4 also takes the next ones under its parent, if they fit."""
    groups: list[list[Sentence]] = []
    previous: list[Sentence] = []
    for _, section in groupby(sentences, key=lambda sentence: sentence.section):
        run = list(section)
        parent = sections[previous[0].section].path[:-1] if previous else ()
        is_under_parent = sections[run[0].section].path[: len(parent)] == parent
        can_join = bool(previous) and is_under_parent and total_tokens(previous) < tokens / 4
        if can_join and total_tokens(groups[-1]) + total_tokens(run) <= tokens:
            groups[-1].extend(run)
        else:
            groups.append(run.copy())
        previous = run
    return groups


def pack_sentences(group: Sequence[Sentence], tokens: int, overlap: int) -> Iterator[Sequence[Sentence]]:
    """Yields runs of at most `tokens` tokens. Each repeats the last sentences of the run before.

    They have at most `overlap` tokens, and are in the section of the sentence after them.
    """
    first, end = 0, 0
    while end < len(group):
        end, total = first + 1, group[first].tokens + group[first].header_tokens
        while end < len(group) and total + group[end].tokens <= tokens:
            total += group[end].tokens
            end += 1
        yield group[first:end]
        if end < len(group):
            room = min(overlap, tokens - group[end].tokens - group[end].header_tokens)
            first_allowed = first + 1
            first = end
            while first > first_allowed:
                sentence = group[first - 1]
                if sentence.section != group[end].section or sentence.tokens > room:
                    break
                first -= 1
                room -= sentence.tokens


def total_tokens(sentences: Sequence[Sentence]) -> int:
    return sum(sentence.tokens for sentence in sentences)


def common_path(paths: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The headings that all paths begin with."""
    shortest = min(paths, key=len)
    common = next((i for i, heading in enumerate(shortest) if any(path[i] != heading for path in paths)), len(shortest))
    return shortest[:common]
