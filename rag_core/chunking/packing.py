"""Which sentences become one chunk: pure functions of their lengths and sections."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from rag_core.types import Section


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """A span that is not cut any more. `header` is the first row of the table that it continues."""

    start: int
    end: int
    tokens: int
    section: int
    header: str = ""


def merged(sentences: Sequence[Sentence], sections: Sequence[Section], tokens: int) -> list[list[Sentence]]:
    """One group a section; a section below tokens / 4 is joined by those that follow under its parent, if they fit."""
    groups: list[list[Sentence]] = []
    last: list[Sentence] = []
    for _, section in groupby(sentences, key=lambda sentence: sentence.section):
        run = list(section)
        small = bool(last) and total_tokens(last) < tokens / 4
        if small and _related(last, run, sections) and total_tokens(groups[-1]) + total_tokens(run) <= tokens:
            groups[-1].extend(run)
        else:
            groups.append(run.copy())
        last = run
    return groups


def packed(group: Sequence[Sentence], tokens: int, overlap: int) -> Iterator[Sequence[Sentence]]:
    """Runs of at most `tokens` tokens; each repeats the last whole sentences, up to `overlap`, of the one before."""
    first, end = 0, 0
    while end < len(group):
        end = _end(group, first, tokens)
        yield group[first:end]
        if end < len(group):
            first = _repeated(group, first + 1, end, min(overlap, tokens - group[end].tokens))


def total_tokens(sentences: Sequence[Sentence]) -> int:
    return sum(sentence.tokens for sentence in sentences)


def common_path(paths: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The headings that govern all of them."""
    shortest = min(paths, key=len)
    agreed = next((i for i, heading in enumerate(shortest) if any(path[i] != heading for path in paths)), len(shortest))
    return shortest[:agreed]


def _related(last: Sequence[Sentence], run: Sequence[Sentence], sections: Sequence[Section]) -> bool:
    parent = sections[last[0].section].path[:-1]
    return sections[run[0].section].path[: len(parent)] == parent


def _end(group: Sequence[Sentence], first: int, tokens: int) -> int:
    end, total = first + 1, group[first].tokens
    while end < len(group) and total + group[end].tokens <= tokens:
        total += group[end].tokens
        end += 1
    return end


def _repeated(group: Sequence[Sentence], least: int, end: int, room: int) -> int:
    """From which index, `least` at the lowest, sentences before `end` fit into `room`: of its own section only."""
    first = end
    while first > least and group[first - 1].section == group[end].section and group[first - 1].tokens <= room:
        first -= 1
        room -= group[first].tokens
    return first
