"""Entities by rules, without a model: what a text writes as a name, an acronym, a quoted term or an identifier."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

SAME_SENTENCE, SAME_CHUNK = 1.0, 0.2
"""How strongly two entities are related that stand together."""
MOST_WORDS = 5
"""A longer one is a heading or a sentence, not a name."""
MOST_ENTITIES = 40
"""Of one chunk, so that a table of names does not relate each with each."""

_SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s+|\n+")  # noqa: RUF001
_WORD = re.compile(r"\w(?:[\w.&'’-]*\w)?")  # noqa: RUF001
_QUOTED = re.compile(r"[\"“„«]([^\"“”„«»\n]{2,80})[\"”“»]|`([^`\n]{2,80})`")
_LINKS = frozenset({"of", "the", "for", "de", "du", "la", "von", "van", "der"})
"""What may stand within a name."""
_FUNCTION_WORDS = (
    "a an and are as at be but by for from he her his how i if in is it its of on or our she so that the their then "
    "there these they this those to was we were what when where which while who why will with you your not no yes "
    "der die das ein eine und le la les un une el los las"
)
_NO_NAMES = frozenset(_FUNCTION_WORDS.split())


@dataclass(frozen=True, slots=True)
class Graph:
    """Of one text: how often each name is mentioned, how it was first written, and how strongly pairs are related.

    Pairs are in the order of their names.
    """

    times: Mapping[str, int]
    labels: Mapping[str, str]
    weights: Mapping[tuple[str, str], float]


def extracted(text: str) -> Graph:
    sentences = [list(_labels(sentence)) for sentence in _SENTENCE_END.split(text)]
    sure = {name_of(label) for labels in sentences for label, is_sure in labels if is_sure}
    named = [[label for label, _ in labels if name_of(label) in sure] for labels in sentences]
    times = dict(Counter(name_of(label) for labels in named for label in labels).most_common(MOST_ENTITIES))
    first = {name_of(label): label for labels in reversed(named) for label in reversed(labels)}
    weights = dict.fromkeys(combinations(sorted(times), 2), SAME_CHUNK)
    for labels in named:
        for pair in combinations(sorted({name_of(label) for label in labels} & times.keys()), 2):
            weights[pair] += SAME_SENTENCE
    return Graph(times, {name: first[name] for name in times}, weights)


@lru_cache(maxsize=1 << 14)
def name_of(label: str) -> str:
    """What is compared: words without their case, their genitive, and what stands between them."""
    plain = unicodedata.normalize("NFKC", label).casefold().replace("’", "'")  # noqa: RUF001
    return " ".join(word.removesuffix("'s") for word in _WORD.findall(plain))


def phrases(question: str) -> list[str]:
    """Every run of up to so many words, as a name: those that are entities are what the question is about."""
    words = name_of(question).split()
    return sorted(
        {
            " ".join(words[first : first + n])
            for n in range(1, MOST_WORDS + 1)
            for first in range(len(words) - n + 1)
            if n > 1 or words[first] not in _NO_NAMES
        }
    )


def _labels(sentence: str) -> Iterator[tuple[str, bool]]:
    """Each with whether it is sure to be one: a capital at the beginning of the sentence alone is none."""
    for match in _QUOTED.finditer(sentence):
        quoted = match[1] or match[2]
        if 0 < len(_WORD.findall(quoted)) <= MOST_WORDS:
            yield quoted.strip(), True
    words = list(_WORD.finditer(sentence))
    yield from ((word[0], True) for word in words if _is_identifier(word[0]) and not word[0][0].isupper())
    for run in _runs(sentence, words):
        label = sentence[run[0].start() : run[-1].end()]
        if len(run) <= MOST_WORDS and len(label) > 1:
            yield label, len(run) > 1 or run[0] is not words[0] or _is_written_apart(label)


def _runs(sentence: str, words: list[re.Match[str]]) -> Iterator[list[re.Match[str]]]:
    """Capitalised words next to each other, without what is no name at their ends."""
    run: list[re.Match[str]] = []
    for word in words:
        if run and (sentence[run[-1].end() : word.start()] != " " or not _continues(word[0])):
            yield from _trimmed(run)
            run = []
        if run or word[0][0].isupper():
            run.append(word)
    yield from _trimmed(run)


def _trimmed(run: list[re.Match[str]]) -> Iterable[list[re.Match[str]]]:
    while run and run[-1][0].casefold() in _NO_NAMES | _LINKS:
        run = run[:-1]
    while run and run[0][0].casefold() in _NO_NAMES:
        run = run[1:]
    return [run] if run else []


def _continues(word: str) -> bool:
    return word[0].isupper() or word[0].isdigit() or word in _LINKS


def _is_written_apart(word: str) -> bool:
    return _is_identifier(word) or (len(word) > 1 and word.isupper())


def _is_identifier(word: str) -> bool:
    """`max_tokens`, `bge-m3`, `halfVec`."""
    inner_capital = word[1:] != word[1:].lower() and not word.isupper() and "-" not in word
    return word[0].isalpha() and ("_" in word or inner_capital or any(letter.isdigit() for letter in word))
