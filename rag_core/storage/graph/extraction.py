"""Entities by rules, without a model: what a text writes as a name, an acronym, a quoted term or an identifier."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, combinations, islice

VERSION = 1
"""Raised when a text comes to hold other entities or relations: the recipe has it."""

SAME_SENTENCE, SAME_CHUNK = 1.0, 0.2
"""How strongly two entities are related that stand together."""
MOST_WORDS = 5
"""A longer one is a heading or a sentence, not a name."""
LONGEST = 100
"""Characters of a name: a longer one is no name, and at some length the index of names does not take it."""
MOST_ENTITIES = 40
"""Of one chunk: what else a table of names holds is left out."""
ALL_RELATED, NEAREST = 24, 5
"""Up to so many entities of a chunk are related each with each. Of more, as in tables, each one with those alone that
share most sentences with it, the nearest first: so few that relations do not grow with the square."""

_MARKS = "".join(filter(lambda sign: unicodedata.category(sign)[0] == "M", map(chr, range(0x300, 0x2100))))
"""Written onto letters: no letters themselves, but no end of a word."""
_WORD = re.compile(rf"\w(?:[\w{_MARKS}.&'’-]*[\w{_MARKS}])?")  # noqa: RUF001
_INITIAL = "[A-HJ-Z\u00c0-\u00de\u0391-\u03a9\u0410-\u042f]"
"""Not the word I."""
_SENTENCE_END = re.compile(
    r"(?<=[.!?。！？])"  # noqa: RUF001
    rf"(?<!\b{_INITIAL}\.)(?<!\b(?:Dr|Mr|Ms|St|Mt|Lt)\.)(?<!\b(?:Mrs|Gen|Sen|Gov|Rev)\.)(?<!\b(?:Prof|Capt)\.)"
    r"\s+|\n+"
)
_QUOTED = re.compile(r"[\"“„«]([^\"“”„«»\n]{2,80})[\"”“»]|`([^`\n]{2,80})`")
_LINKS = frozenset({"of", "the", "for", "de", "du", "la", "von", "van", "der"})
"""What may stand within a name."""
_ENGLISH = (
    "a an and are as at be but by for from he her his how i if in is it its of on or our she so that the their then "
    "there these they this those to was we were what when where which while who why will with you your not no yes"
)
_ARTICLES = frozenset({"der", "die", "das", "ein", "eine", "und", "le", "la", "les", "un", "une", "el", "los", "las"})
"""Of other languages. With a capital within a sentence they are part of a name: Los Angeles."""
_NO_NAMES = frozenset(_ENGLISH.split()) | _ARTICLES


@dataclass(frozen=True, slots=True)
class Graph:
    """Of one text: how often each name is mentioned, how it was first written, and how strongly pairs are related.

    Pairs are in the order of their names.
    """

    times: Mapping[str, int]
    labels: Mapping[str, str]
    weights: Mapping[tuple[str, str], float]


def extracted(text: str) -> Graph:
    sentences = [list(_labels(sentence)) for sentence in _SENTENCE_END.split(unicodedata.normalize("NFC", text))]
    sure = {name_of(label) for labels in sentences for label, is_sure in labels if is_sure}
    named = [[label for label, _ in labels if name_of(label) in sure] for labels in sentences]
    mentioned = [[name_of(label) for label in labels] for labels in named]
    times = dict(Counter(chain.from_iterable(mentioned)).most_common(MOST_ENTITIES))
    first = {name_of(label): label for labels in reversed(named) for label in reversed(labels)}
    return Graph(times, {name: first[name] for name in times}, _weights(mentioned, times.keys()))


@lru_cache(maxsize=1 << 14)
def name_of(label: str) -> str:
    """What is compared: words without their case, their genitive, and what stands between them."""
    return " ".join(chain.from_iterable(map(_plain, _WORD.findall(unicodedata.normalize("NFC", label)))))


def phrases(question: str) -> list[str]:
    """Every run of up to so many words, as a name: those that are entities are what the question is about.

    A function word alone is none, unless it is written as an acronym.
    """
    written = _WORD.findall(unicodedata.normalize("NFC", question))
    words = [(plain, plain not in _NO_NAMES or _is_acronym(word)) for word in written for plain in _plain(word)]
    return sorted(
        {
            " ".join(plain for plain, _ in words[first : first + n])
            for n in range(1, MOST_WORDS + 1)
            for first in range(len(words) - n + 1)
            if n > 1 or words[first][1]
        }
    )


def _weights(mentioned: Sequence[Sequence[str]], names: Set[str]) -> dict[tuple[str, str], float]:
    """`mentioned` are names by sentence, of which `names` are kept."""
    weights = dict.fromkeys(combinations(sorted(names), 2), SAME_CHUNK)
    for sentence in mentioned:
        for pair in combinations(sorted(names & set(sentence)), 2):
            weights[pair] += SAME_SENTENCE
    if len(names) <= ALL_RELATED:
        return weights
    first = {name: place for place, name in enumerate(dict.fromkeys(chain.from_iterable(mentioned)))}
    ranked = sorted(weights, key=lambda pair: (-weights[pair], abs(first[pair[0]] - first[pair[1]]), pair))
    kept = {pair for name in names for pair in islice((each for each in ranked if name in each), NEAREST)}
    return {pair: weight for pair, weight in weights.items() if pair in kept}


def _plain(word: str) -> list[str]:
    """Several where a character stands for several words."""
    folded = unicodedata.normalize("NFKC", word).casefold().replace("’", "'")  # noqa: RUF001
    return [part.removesuffix("'s") for part in _WORD.findall(folded)]


def _labels(sentence: str) -> Iterator[tuple[str, bool]]:
    """Those that can be stored, each with whether it is sure to be one."""
    short = ((label, sure) for label, sure in _written(sentence) if len(label) <= LONGEST)
    return ((label, sure) for label, sure in short if 0 < len(name_of(label)) <= LONGEST)


def _written(sentence: str) -> Iterator[tuple[str, bool]]:
    """A capital at the beginning of the sentence alone is not sure to make a name."""
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
        if run and not _continues(sentence[run[-1].end() : word.start()], word[0]):
            yield from _trimmed(run, sentence)
            run = []
        if run or word[0][0].isupper():
            run.append(word)
    yield from _trimmed(run, sentence)


def _trimmed(run: list[re.Match[str]], sentence: str) -> Iterable[list[re.Match[str]]]:
    while run and run[-1][0].casefold() in _NO_NAMES | _LINKS and not _stands_out(run[-1][0], sentence):
        run = run[:-1]
    while run and run[0][0].casefold() in _NO_NAMES and not _begins_name(run[0], sentence):
        run = run[1:]
    return [run] if run else []


def _begins_name(word: re.Match[str], sentence: str) -> bool:
    """Although it is a function word: as an acronym, or as an article that has its capital for no other reason."""
    before = sentence[: word.start()].rstrip()[-1:]
    within = before.isalnum() or before == ","
    return _stands_out(word[0], sentence) or (within and word[0].casefold() in _ARTICLES)


def _stands_out(word: str, sentence: str) -> bool:
    return _is_acronym(word) and not sentence.isupper()


def _continues(gap: str, word: str) -> bool:
    """A full stop in the gap is an abbreviation's: no sentence ended there, unless a function word begins one."""
    follows = gap == " " or (gap == ". " and word.casefold() not in _NO_NAMES)
    return follows and (word[0].isupper() or word[0].isdigit() or word in _LINKS)


def _is_written_apart(word: str) -> bool:
    return _is_identifier(word) or _is_acronym(word)


def _is_acronym(word: str) -> bool:
    return len(word) > 1 and word.isupper()


def _is_identifier(word: str) -> bool:
    """`max_tokens`, `bge-m3`, `halfVec`."""
    inner_capital = word[1:] != word[1:].lower() and not word.isupper() and "-" not in word
    return word[0].isalpha() and ("_" in word or inner_capital or any(letter.isdigit() for letter in word))
